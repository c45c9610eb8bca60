use super::*;

fn places(text: &str, keys: &[&str]) -> Vec<(usize, usize)> {
    let mut reporter = Reporter::new("t.toml", text);
    let document = Document::read(&mut reporter).expect("valid TOML");
    for key in keys {
        reporter.at_value(&document.host, key, Problem::Twice);
    }
    reporter.into_errors().iter().map(|error| (error.place.line, error.place.column)).collect()
}

#[test]
fn columns_are_characters() {
    assert_eq!(places("host = { \"gr\u{fc}n\" = 1, b = 2 }", &["b"]), [(1, 26)]);
}

#[test]
fn lines_end_with_lf_or_crlf() {
    assert_eq!(places("[host]\r\na = 1\r\n\r\nb = 2", &["a", "b"]), [(2, 5), (4, 5)]);
}

#[test]
fn an_absent_key_is_shown_at_the_header() {
    assert_eq!(places("# first\n[host]\na = 1", &["b"]), [(2, 2)]);
}

#[test]
fn a_byte_order_mark_is_no_column() {
    assert_eq!(places("\u{feff}host.a = 1", &["a"]), [(1, 10)]);
}

#[test]
fn flat_keys_whatever_way_they_are_written() {
    let text = "[host]\na.b.c = 1\n'a.b.d' = 2\n[host.a.b.e]\nf = 3\n";
    let mut reporter = Reporter::new("t.toml", text);
    let document = Document::read(&mut reporter).expect("valid TOML");
    let keys: Vec<_> = document.host.raw().keys().collect();
    assert_eq!(keys, ["a.b.c", "a.b.d", "a.b.e.f"]);
}
