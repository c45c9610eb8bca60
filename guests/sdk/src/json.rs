//! A small reader of JSON: all of RFC 8259, and no dependency that would double a policy.

use crate::decimal;

/// Nesting beyond this is refused, so that a guest's small stack is enough.
const DEPTH_MAX: u32 = 32;

/// A JSON value. Numbers are 64-bit floats, as JSON's readers in most languages have them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object, its keys in the order of the text.
    Table(Vec<(String, Self)>),
}

impl Value {
    /// What it is, with its article.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    /// The value of a key, when this is an object that has it. Of a key that is there twice, the last.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Table(entries) => {
                entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The string, when it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, when it is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// What a path leads to: keys and indices with dots between them, such as `data.tokens.0.value`; or, when it
    /// begins with a slash, a JSON Pointer (RFC 6901), for keys that have dots.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Self> {
        let pointer = path.strip_prefix('/');
        let mut parts = pointer.unwrap_or(path).split(if pointer.is_some() { '/' } else { '.' });
        parts.try_fold(self, |value, part| match value {
            Self::List(items) => items.get(part.parse::<usize>().ok()?),
            _ if pointer.is_some() => value.get(&part.replace("~1", "/").replace("~0", "~")),
            _ => value.get(part),
        })
    }
}

/// Reads one value and nothing after it.
///
/// # Errors
/// When the text is something else: the offset of the first byte that does not fit.
pub fn parse(text: &str) -> Result<Value, usize> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at == text.len() { Ok(value) } else { Err(reader.at) }
}

/// Writes a string as JSON has it, quotes and all.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            c if c < ' ' => {
                let hex = |digit: u32| char::from_digit(digit, 16).unwrap_or('0');
                quoted.push_str("\\u00");
                quoted.extend([hex(u32::from(c) >> 4), hex(u32::from(c) & 15)]);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: u32) -> Result<Value, usize> {
        if depth > DEPTH_MAX {
            return Err(self.at);
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.table(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Value::Text),
            Some(b't') => self.word("true", Value::Boolean(true)),
            Some(b'f') => self.word("false", Value::Boolean(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn table(&mut self, depth: u32) -> Result<Value, usize> {
        self.at += 1;
        let mut entries = Vec::new();
        self.space();
        if self.take(b'}') {
            return Ok(Value::Table(entries));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            entries.push((key, self.value(depth + 1)?));
            self.space();
            if self.take(b'}') {
                return Ok(Value::Table(entries));
            }
            self.expect(b',')?;
        }
    }

    fn list(&mut self, depth: u32) -> Result<Value, usize> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            self.expect(b',')?;
        }
    }

    fn string(&mut self) -> Result<String, usize> {
        self.expect(b'"')?;
        let mut string = String::new();
        loop {
            let begin = self.at;
            while self.peek().is_some_and(|b| b != b'"' && b != b'\\' && b >= b' ') {
                self.at += 1;
            }
            string.push_str(self.since(begin));
            if self.take(b'"') {
                return Ok(string);
            }
            self.expect(b'\\')?;
            string.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, usize> {
        let escape = self.peek().ok_or(self.at)?;
        let c = match escape {
            b'"' | b'\\' | b'/' => char::from(escape),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.code_point(),
            _ => return Err(self.at),
        };
        self.at += 1;
        Ok(c)
    }

    /// `uXXXX`, or a pair of surrogates.
    fn code_point(&mut self) -> Result<char, usize> {
        let begin = self.at;
        let high = self.hex()?;
        let code = if (0xd800..0xdc00).contains(&high) {
            self.expect(b'\\')?;
            let low = self.hex()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(begin);
            }
            0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(code).ok_or(begin)
    }

    fn hex(&mut self) -> Result<u32, usize> {
        self.expect(b'u')?;
        let (begin, mut code) = (self.at, 0);
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16)).ok_or(begin)?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value, usize> {
        let begin = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        decimal::parse(self.since(begin)).map(Value::Number).ok_or(begin)
    }

    fn digits(&mut self) -> Result<(), usize> {
        let begin = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(begin) }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, usize> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.at);
        }
        self.at += word.len();
        Ok(value)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The text from `begin` to here. Both stand before or after an ASCII character, so it is never cut within one.
    fn since(&self, begin: usize) -> &str {
        self.text.get(begin..self.at).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    fn expect(&mut self, byte: u8) -> Result<(), usize> {
        if self.take(byte) { Ok(()) } else { Err(self.at) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_value() {
        let text = r#" {"a": [1, -2.5e3, 0, true, false, null], "b": {"c\n\u00e9\ud83d\ude00": "x\"\\\/"}, "d": []} "#;
        let table = |entries: Vec<(&str, Value)>| {
            Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let list = [Value::Number(1.0), Value::Number(-2_500.0), Value::Number(0.0), Value::Boolean(true)];
        let list = Value::List([list.as_slice(), &[Value::Boolean(false), Value::Null]].concat());
        let inner = table(vec![("c\né😀", Value::Text("x\"\\/".to_owned()))]);
        assert_eq!(parse(text), Ok(table(vec![("a", list), ("b", inner), ("d", Value::List(vec![]))])));
    }

    #[test]
    fn what_is_not_json_is_refused_where_it_begins() {
        for (text, offset) in [
            ("", 0),
            ("{", 1),
            ("[1,]", 3),
            ("{\"a\" 1}", 5),
            ("01", 1),
            ("1.", 2),
            ("-", 1),
            ("tru", 0),
            ("1 2", 2),
            ("\"a", 2),
            ("\"\\x\"", 2),
            ("\"\\ud800\"", 7),
            ("\"\\udc00\"", 2),
            ("\"\n\"", 1),
            ("1e999", 0),
            ("'a'", 0),
        ] {
            assert_eq!(parse(text), Err(offset), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err(), "deep nesting is refused before the stack ends");
    }

    #[test]
    fn paths_lead_to_values() {
        let value = parse(r#"{"a": {"b": [{"c": 1}, "x"]}, "d.e/f~": true, "g": 1, "g": 2}"#).unwrap();
        assert_eq!(value.at("a.b.0.c"), Some(&Value::Number(1.0)));
        assert_eq!(value.at("/a/b/1").and_then(Value::as_text), Some("x"));
        assert_eq!(value.at("/d.e~1f~0"), Some(&Value::Boolean(true)));
        assert_eq!(value.at("g").and_then(Value::as_number), Some(2.0));
        for nowhere in ["", "a.c", "a.b.2", "a.b.x", "a.b.0.c.d", "d.e/f~", "/a/b/-1"] {
            assert_eq!(value.at(nowhere), None, "{nowhere}");
        }
    }

    fn write(value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Boolean(value) => value.to_string(),
            Value::Number(value) => value.to_string(),
            Value::Text(text) if text.len() % 2 == 0 => quote(text),
            Value::Text(text) => escape(text),
            Value::List(items) => format!("[{}]", items.iter().map(write).collect::<Vec<_>>().join(" , ")),
            Value::Table(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("{}:{}", escape(key), write(value))).collect();
                format!("{{{}}}", entries.join(","))
            }
        }
    }

    /// As [`quote`], with every character escaped.
    fn escape(text: &str) -> String {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{escaped}\"")
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Boolean),
            (-1e12_f64..1e12).prop_map(Value::Number),
            "(?s).{0,12}".prop_map(Value::Text),
            "[\\x00-\\x22\\\\]{0,6}".prop_map(Value::Text),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
                prop::collection::vec((".{0,6}", inner), 0..5).prop_map(Value::Table),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in values()) {
            prop_assert_eq!(parse(&write(&value)), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_prefix_of_a_table_is_one(value in values(), cut in 0.0_f64..1.0) {
            let text = format!("{{\"a\":{}}}", write(&value));
            let mut end = (text.len() as f64 * cut) as usize;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            prop_assert!(parse(&text[..end]).is_err());
        }
    }
}
