//! A small reader of JSON: all of RFC 8259, nothing to write with, and no dependency that would double a policy.

/// Nesting beyond this is refused, so that a guest's small stack is enough.
const DEPTH_MAX: u32 = 32;

/// A JSON value. Numbers are 64-bit floats, as JSON's readers in most languages have them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Number(f64),
    Text(String),
    List(Vec<Self>),
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
}

/// Reads one value and nothing after it; the error is the offset of the first byte that does not fit.
pub(crate) fn parse(text: &str) -> Result<Value, usize> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at == text.len() { Ok(value) } else { Err(reader.at) }
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
            let rest = &self.text[self.at..];
            let end = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').ok_or(self.text.len())?;
            string.push_str(&rest[..end]);
            self.at += end;
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
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or(self.at)?;
        self.at += 4;
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
        let number: f64 = self.text[begin..self.at].parse().map_err(|_| begin)?;
        if number.is_finite() { Ok(Value::Number(number)) } else { Err(begin) }
    }

    fn digits(&mut self) -> Result<(), usize> {
        let begin = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(begin) }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, usize> {
        if !self.text[self.at..].starts_with(word) {
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

    fn write(value: &Value) -> String {
        match value {
            Value::Null => "null".to_owned(),
            Value::Boolean(value) => value.to_string(),
            Value::Number(value) => value.to_string(),
            Value::Text(text) => quote(text),
            Value::List(items) => format!("[{}]", items.iter().map(write).collect::<Vec<_>>().join(" , ")),
            Value::Table(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| format!("{}:{}", quote(key), write(value))).collect();
                format!("{{{}}}", entries.join(","))
            }
        }
    }

    fn quote(text: &str) -> String {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{escaped}\"")
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Boolean),
            (-1e12_f64..1e12).prop_map(Value::Number),
            ".{0,12}".prop_map(Value::Text),
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
