use super::*;
use crate::fixtures::{BROKER, STDOUT};
use crate::sections::{FLOW_TABLE, HOST_TABLE, POLICY_TABLE, SECTIONS};

const TABLES: [&Table; 5] = [&BROKER, &STDOUT, &HOST_TABLE, &POLICY_TABLE, &FLOW_TABLE];

#[test]
fn text_of_a_connector() {
    insta::assert_snapshot!(reference(&BROKER));
}

#[test]
fn text_of_the_hosts_own_sections() {
    insta::assert_snapshot!(SECTIONS.iter().map(section_reference).collect::<Vec<_>>().join("\n"));
}

#[test]
fn json_of_a_connector() {
    let one = Table { options: &BROKER.options[..3], ..BROKER };
    insta::assert_snapshot!(serde_json::to_string_pretty(&reference_json(&one)).expect("JSON"));
}

#[test]
fn lines_fit() {
    for table in TABLES {
        for line in reference(table).lines() {
            assert!(line.chars().count() <= LINE_CHARS_MAX, "{line}");
            assert_eq!(line, line.trim_end());
        }
    }
}

#[test]
fn every_option_is_in_it() {
    for table in TABLES {
        let text = reference(table);
        for spec in table.options {
            assert!(text.lines().any(|line| line.split(' ').next() == Some(spec.key)), "{}", spec.key);
        }
    }
}
