use super::*;

fn parameter(name: &str, kind: ParameterKind, required: bool) -> Parameter {
    let summary = format!("the {name}");
    Parameter { name: name.to_owned(), kind, required, default: None, summary }
}

fn parameters() -> Vec<Parameter> {
    vec![
        parameter("share", ParameterKind::Number, false),
        parameter("delay", ParameterKind::Duration, true),
        parameter("limit", ParameterKind::Size, false),
        parameter("count", ParameterKind::Integer, false),
        parameter("rule", ParameterKind::List, false),
    ]
}

fn check(text: &str) -> Result<String, String> {
    let source = Source { file: Path::new("fair.toml"), text };
    let reading = read(Some(source), &parameters()).map_err(|errors| errors.to_string())?;
    if reading.errors.is_empty() {
        Ok(reading.rules.to_string())
    } else {
        Err(RuleErrors(reading.errors).to_string())
    }
}

#[test]
fn rules_become_one_json_object() {
    let text = "delay = \"5s\"\nshare = 0.5\ncount = 0x10\n[[rule]]\nwhen = 2026-01-01\nids = [1, 2]\n";
    let json = check(text).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&json).unwrap(),
        serde_json::json!({
            "delay": "5s", "share": 0.5, "count": 16, "rule": [{ "when": "2026-01-01", "ids": [1, 2] }]
        })
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let error = check("shares = 1\ndelay = \"5\"\ncount = 1.5\nlimit = 3\n").unwrap_err();
    assert!(error.contains("fair.toml:1: `shares`: unknown key, did you mean `share`?"), "{error}");
    assert!(error.contains("fair.toml:2: `delay`: `5` needs a unit"), "{error}");
    assert!(error.contains("fair.toml:3: `count`: must be a whole number, not a float"), "{error}");
    assert!(
        error.contains("fair.toml:4: `limit`: must be a size such as `64KiB`, not an integer"),
        "{error}"
    );
}

#[test]
fn a_required_key_that_is_missing_is_named() {
    assert_eq!(
        check("").unwrap_err(),
        "fair.toml: `delay`: is missing (a duration such as `250ms` or `1m30s`: the delay)"
    );
    assert_eq!(read(None, &[]).unwrap().rules.to_string(), NOTHING);
}

#[test]
fn what_is_not_toml_has_its_line() {
    let error = check("delay = \"5s\"\nshare = = 1\n").unwrap_err();
    assert!(error.starts_with("fair.toml:2: not TOML: "), "{error}");
}

#[test]
fn numbers_that_json_does_not_have_are_refused() {
    assert!(check("delay = \"5s\"\nshare = nan").unwrap_err().contains("not a finite number"));
    assert!(
        check("delay = \"5s\"\ncount = 99999999999999999999").unwrap_err().contains("does not fit 64 bits")
    );
}

#[test]
fn a_refusal_has_the_line_of_the_key_that_it_names() {
    let text = "delay = \"5s\"\n\n[[rule]]\nrate = 1\n[[rule]]\nmatch = { tag = \"a\" }\nrates = 2\n";
    let source = Source { file: Path::new("r.toml"), text };
    let line = |key: &str| refusal(Some(source), key.to_owned(), String::new()).line;
    assert_eq!(line("delay"), Some(1));
    assert_eq!(line("rule[0].rate"), Some(4));
    assert_eq!(line("rule[1].rates"), Some(7));
    assert_eq!(line("rule[1].match.tag"), Some(6));
    assert_eq!(line("rule[1].rate"), Some(5), "what is missing is told where its table begins");
    assert_eq!(line("rule[7].rate"), Some(3), "or where the deepest known part is");
    assert_eq!(line("other"), None);
    assert_eq!(line(""), None);
}

#[test]
fn mistakes_are_told_in_the_order_of_the_file_the_policys_own_among_them() {
    let text = "zeta = 1\nshare = 7.0\ndelay = 5\nalpha = 2\n";
    let source = Source { file: Path::new("r.toml"), text };
    let reading = read(Some(source), &parameters()).unwrap();
    assert_eq!(reading.rules.to_string(), "{\"share\":7.0}", "what fits is for the policy to judge");
    let refusals = vec![
        ("share".to_owned(), "must be 0 to 1".to_owned()),
        ("delay".to_owned(), "is missing".to_owned()),
    ];
    let lines: Vec<_> = with_refusals(Some(source), reading.errors, refusals)
        .0
        .into_iter()
        .map(|error| format!("{} {}", error.line.unwrap(), error.key))
        .collect();
    assert_eq!(lines, ["1 zeta", "2 share", "3 delay", "4 alpha"]);
}
