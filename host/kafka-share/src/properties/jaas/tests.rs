use super::*;

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";

fn option(options: &str) -> Option<String> {
    let login = Login::parse(&format!("{PLAIN} required {options};")).unwrap();
    login.option("password").map(str::to_owned)
}

fn parsed(text: &str) -> Login {
    Login::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

#[test]
fn javas_texts_are_read() {
    let login = parsed(&format!("{PLAIN} required\n  username=\"alice\"\n  password=\"a \\\"b\\\\ ;=c\";"));
    assert_eq!(login.module, Module::Plain);
    assert_eq!((login.option("username"), login.option("password")), (Some("alice"), Some("a \"b\\ ;=c")));
    let shaded =
        "x.org.apache.kafka.common.security.scram.ScramLoginModule required username=u password='p';";
    assert_eq!(parsed(shaded).option("password"), Some("p"));
    for flag in ["required", "REQUISITE", "Sufficient", "optional", "\"required\""] {
        assert!(parsed(&format!("{PLAIN} {flag};")).options.is_empty());
    }
    assert_eq!(parsed(&format!("'{PLAIN}' required;")).module, Module::Plain);
    let commented = format!(
        "// whoever\n/* and why\n; */ {PLAIN} required / not this: x=y;\n username=\"u//v\" // \"\n \
         password=\"/*p*/\";\n// over\n"
    );
    let login = parsed(&commented);
    assert_eq!((login.option("username"), login.option("password")), (Some("u//v"), Some("/*p*/")));
    assert_eq!(login.options.len(), 2);
}

/// Each after what `JaasConfig` of Kafka 4.4.0 made of the same text.
#[test]
fn values_are_read_as_java_reads_them() {
    for (options, expected) in [
        (r#"password="a\tb\nc\r""#, "a\tb\nc\r"),
        (r#"password="\a\b\f\v\x\é\\""#, "\u{7}\u{8}\u{c}\u{b}xé\\"),
        (r#"password="\101\7\08\377\477""#, "A\u{7}\u{0}8\u{ff}'7"),
        (r#"password="it's""#, "it's"),
        (r#"password='say "so"'"#, "say \"so\""),
        (r"password=a.b-c_$1", "a.b-c_$1"),
        ("password=größe", "größe"),
        ("password=\u{1f980}", "\u{1f980}"),
        ("password = \"spaced\"", "spaced"),
        ("\"password\"=\"quoted\"", "quoted"),
        ("password=first password=last", "last"),
        ("password=\"with its line\n", "with its line"),
        ("password=a/b", "a"),
        ("password=\"1234\"", "1234"),
    ] {
        // A comment takes the rest of its line.
        assert_eq!(option(&format!("{options}\n")).as_deref(), Some(expected), "{options}");
    }
}

#[test]
fn what_is_wrong_is_said_without_the_secret() {
    let module = Module::Scram.name();
    for (text, said) in [
        (String::new(), "must begin"),
        ("hunter2-top-secret".to_owned(), "must begin"),
        ("com.sun.security.auth.module.Krb5LoginModule required hunter2;".to_owned(), "Krb5LoginModule"),
        (module.to_owned(), "`required`"),
        (format!("{module} username=\"u\" password=\"hunter2\";"), "`required`"),
        (format!("{module} required username=\"u\" password=\"hunter2\""), "`;`"),
        (format!("{module} required password=\"hunter2;"), "never closed"),
        (format!("{module} required password=\"hunter2\\"), "never closed"),
        (format!("{module} required password \"hunter2\";"), "name="),
        (format!("{module} required password=;"), "name="),
        (format!("{module} required password=12hunter2;"), "without quotes"),
        (format!("{module} required password=%hunter2;"), "name="),
        (format!("{module} required password=\"hunter2\"; {module} required;"), "behind"),
    ] {
        let problem = Login::parse(&text).err().expect(&text);
        assert!(problem.contains(said) && !problem.contains("hunter2"), "{text}: {problem}");
    }
}
