use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tidegate_model::{DeliveryId, Handle, Instant, Message};

use super::*;

fn emission() -> Emission {
    let message = Message {
        lite_topic: Some("tenant-7".into()),
        tag: Some("urgent".into()),
        keys: vec!["a".into(), "b".into()],
        properties: vec![
            ("region".into(), Bytes::from_static(b"eu")),
            ("raw".into(), Bytes::from_static(&[0xff])),
            ("empty".into(), Bytes::new()),
        ],
        ..Message::new("main", "01AB")
    };
    Emission {
        id: DeliveryId(1),
        message: Arc::new(message),
        key: "tenant-7".into(),
        order: None,
        attempt: 3,
        handle: Handle { routing: Arc::default(), text: "h".into() },
        received_at: Instant::ZERO,
        expires_at: Instant::ZERO,
        dead_letter: None,
    }
}

fn render(text: &str) -> Result<String, String> {
    let template = Template::parse(text).map_err(|error| error.to_string())?;
    template.render(&emission()).map_err(|error| error.to_string())
}

#[test]
fn a_literal_one_means_itself() {
    let template = Template::literal("a{tag}}{b").unwrap();
    assert_eq!(template.render(&emission()).unwrap(), "a{tag}}{b");
    assert_eq!((template.fixed(), template.is_literal()), (Some("a{tag}}{b"), true));
    assert!(!format!("{template:?}").contains("tag"), "it may be a secret");
    assert_eq!(Template::literal("").unwrap().fixed(), Some(""));
    assert!(Template::literal(&"x".repeat(TEMPLATE_BYTES_MAX + 1)).is_err());
}

#[test]
fn every_field_gives_its_value() {
    for (text, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("{topic}", "main"),
        ("a/{lite-topic}/b", "a/tenant-7/b"),
        ("{key}{key}", "tenant-7tenant-7"),
        ("{message-id}", "01AB"),
        ("{tag}", "urgent"),
        ("{message-keys}", "a b"),
        ("{attempt}", "3"),
        ("{property:region}", "eu"),
        ("{{{tag}}}", "{urgent}"),
        ("{{tag}}", "{tag}"),
        ("}}{{", "}{"),
        ("\u{e9}{tag}\u{e9}", "\u{e9}urgent\u{e9}"),
        ("{message-group|none}", "none"),
        ("{message-group|}", ""),
        ("{property:absent|a b:c|d}", "a b:c|d"),
        ("{property:empty|none}", "none"),
        ("{tag|none}", "urgent"),
    ] {
        assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_mistake_is_named_with_its_place() {
    let fields = "`{topic}`, `{lite-topic}`, `{message-group}`, `{key}`, `{message-id}`, `{tag}`, `{message-keys}`, \
                  `{attempt}`, `{property:NAME}`";
    for (text, expected) in [
        ("a/{lite_topic}", "unknown field `{lite_topic}` at character 3, did you mean `{lite-topic}`?"),
        ("\u{e9}{Topic|x}", "unknown field `{Topic|x}` at character 2, did you mean `{topic}`?"),
        ("{propery:x}", "unknown field `{propery:x}` at character 1, did you mean `{property:NAME}`?"),
        ("{}", &format!("unknown field `{{}}` at character 1; the fields are {fields}")),
        ("{property}", "the field at character 1 names no property, write `{property:NAME}`"),
        ("x{property:}", "the field at character 2 names no property, write `{property:NAME}`"),
        ("a{tag", "the brace at character 2 is not closed; a brace that is meant as one is written `{{`"),
        (
            "{tag{key}}",
            "the brace at character 1 is not closed; a brace that is meant as one is written `{{`",
        ),
        ("{{}", "the brace at character 3 closes nothing; a brace that is meant as one is written `}}`"),
        ("a}b", "the brace at character 2 closes nothing; a brace that is meant as one is written `}}`"),
    ] {
        assert_eq!(render(text).unwrap_err(), expected, "{text}");
    }
    let long = "x".repeat(TEMPLATE_BYTES_MAX + 1);
    assert_eq!(Template::parse(&long), Err(TemplateError::TooLong { bytes: long.len() }));
}

#[test]
fn a_field_without_a_value_is_an_error_that_names_it() {
    for (text, expected) in [
        ("{message-group}", "the message has no value for `{message-group}`"),
        ("{property:absent}", "the message has no value for `{property:absent}`"),
        ("{property:empty}", "the message has no value for `{property:empty}`"),
        ("{property:raw|none}", "the message's value for `{property:raw}` is not text"),
    ] {
        assert_eq!(render(text).unwrap_err(), expected, "{text}");
    }
    let keyless = Emission { key: "".into(), message: Arc::new(Message::new("t", "i")), ..emission() };
    for field in ["key", "message-keys", "tag", "lite-topic"] {
        let template = Template::parse(&format!("{{{field}}}")).unwrap();
        assert_eq!(template.render(&keyless), Err(RenderError::NoValue { field: field.into() }));
    }
}

#[test]
fn the_text_is_bounded() {
    let long = Emission { key: "k".repeat(RENDERED_BYTES_MAX).into(), ..emission() };
    let alone = Template::parse("{key}").unwrap();
    assert_eq!(alone.render(&long).unwrap().len(), RENDERED_BYTES_MAX);
    assert_eq!(Template::parse("{key}x").unwrap().render(&long), Err(RenderError::TooLong));
    let longer = Emission { key: "k".repeat(RENDERED_BYTES_MAX + 1).into(), ..emission() };
    assert_eq!(alone.render_escaped(&longer, |_| Cow::Borrowed("")), Err(RenderError::TooLong));
}

#[test]
fn only_values_are_escaped() {
    let template = Template::parse("/{key}/{message-group|a/b}").unwrap();
    let odd = Emission { key: "x/y".into(), ..emission() };
    let escaped = template.render_escaped(&odd, |value| value.replace('/', "%2F").into());
    assert_eq!(escaped.as_deref(), Ok("/x%2Fy/a/b"));
}

#[test]
fn literals_are_texts_and_defaults() {
    let template = Template::parse("a{{b{tag|c}{key}d{message-group|}").unwrap();
    assert_eq!(template.literals().collect::<Vec<_>>(), ["a{b", "c", "d", ""]);
}

#[test]
fn fixed_means_without_fields() {
    for (text, fixed) in [("", Some("")), ("a{{b", Some("a{b")), ("{tag}", None), ("{tag|x}", None)] {
        let template = Template::parse(text).unwrap();
        assert_eq!(template.fixed(), fixed);
        assert_eq!(template.is_fixed(), fixed.is_some());
        assert_eq!(template.to_string(), text);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,60}|([{}|:]|tag|key|property|-){0,12}") {
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(template.as_str(), &text);
            let rendered = template.render(&emission());
            if let Some(fixed) = template.fixed() {
                prop_assert_eq!(rendered.as_deref(), Ok(fixed));
            }
        }
    }

    #[test]
    fn doubled_braces_give_any_text_back(text in ".{0,60}|[{}]{0,12}") {
        let doubled = text.replace('{', "{{").replace('}', "}}");
        let template = Template::parse(&doubled).unwrap();
        prop_assert_eq!(template.fixed(), Some(&*text));
    }

    #[test]
    fn a_value_arrives_unchanged(key in ".{1,40}", before in "[^{}]{0,10}", after in "[^{}]{0,10}") {
        let template = Template::parse(&format!("{before}{{key}}{after}")).unwrap();
        let emission = Emission { key: key.as_str().into(), ..emission() };
        prop_assert_eq!(template.render(&emission), Ok(format!("{before}{key}{after}")));
    }
}
