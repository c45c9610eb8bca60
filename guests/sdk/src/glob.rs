//! Patterns: `*` stands for any text, `?` for one character, `[abc]` or `[a-z]` for one of those, `[!…]` for one that
//! is not, and a backslash before any of them for itself.

use std::str::Chars;

/// A pattern that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Glob(Vec<Token>);

#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    Literal(char),
    One,
    Any,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is none: what is wrong with it, as a sentence for an error about a rule.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            match c {
                // Two stars mean what one means, and cost more.
                '*' if tokens.last() == Some(&Token::Any) => {}
                '*' => tokens.push(Token::Any),
                '?' => tokens.push(Token::One),
                '[' => tokens
                    .push(class(&mut chars).ok_or_else(|| format!("`{pattern}` has a `[` without its `]`"))?),
                '\\' => {
                    let escaped = chars.next();
                    tokens.push(Token::Literal(
                        escaped.ok_or_else(|| format!("`{pattern}` ends in a backslash"))?,
                    ));
                }
                c => tokens.push(Token::Literal(c)),
            }
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern fits the whole text. Takes at most the product of both lengths, whatever they are.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (mut tokens, mut rest) = (self.0.as_slice(), text.chars());
        // Where to go on when the part after the last star does not fit: one character further.
        let mut retry: Option<(&[Token], Chars<'_>)> = None;
        loop {
            let mut after = rest.clone();
            let fits = match (tokens.split_first(), after.next()) {
                (Some((Token::Any, others)), _) => {
                    tokens = others;
                    retry = Some((tokens, rest.clone()));
                    continue;
                }
                (None, None) => return true,
                (Some((token, others)), Some(c)) if token.fits(c) => Some(others),
                _ => None,
            };
            if let Some(others) = fits {
                (tokens, rest) = (others, after);
                continue;
            }
            let Some((after_star, mut begin)) = retry else { return false };
            if begin.next().is_none() {
                return false;
            }
            (tokens, rest) = (after_star, begin.clone());
            retry = Some((after_star, begin));
        }
    }
}

impl Token {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::One => true,
            Self::Any => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Reads the rest of a class; a `]` right at its beginning stands for itself.
fn class(chars: &mut Chars<'_>) -> Option<Token> {
    let mut negated = false;
    if chars.as_str().starts_with('!') {
        negated = true;
        chars.next();
    }
    let mut ranges = Vec::new();
    loop {
        let mut low = chars.next()?;
        if low == ']' && !ranges.is_empty() {
            return Some(Token::Class { negated, ranges });
        }
        if low == '\\' {
            low = chars.next()?;
        }
        let rest = chars.as_str();
        let high = if rest.starts_with('-') && !rest.starts_with("-]") {
            chars.next();
            match chars.next()? {
                '\\' => chars.next()?,
                high => high,
            }
        } else {
            low
        };
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("vip-*", "vip-7", true),
            ("vip-*", "vip", false),
            ("*-eu-*", "tenant-eu-1", true),
            ("*-eu-*", "tenant-us-1", false),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "acb", false),
            ("?", "é", true),
            ("?", "", false),
            ("t[0-9]", "t7", true),
            ("t[!0-9]", "t7", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("Ünï*", "Ünïcode", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn broken_patterns_are_refused() {
        assert!(Glob::parse("a[b").unwrap_err().contains("without its `]`"));
        assert!(Glob::parse("a\\").unwrap_err().contains("backslash"));
        assert!(Glob::parse("[").is_err() && Glob::parse("[a-").is_err());
    }

    #[test]
    fn many_stars_on_a_long_text_take_no_time_to_speak_of() {
        assert!(!matches(&format!("{}b", "a*".repeat(50)), &"a".repeat(5_000)));
    }

    /// The definition, by trying everything.
    fn by_definition(tokens: &[Token], text: &[char]) -> bool {
        match (tokens.first(), text.first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(Token::Any), _) => (0..=text.len()).any(|skip| by_definition(&tokens[1..], &text[skip..])),
            (Some(token), Some(c)) => token.fits(*c) && by_definition(&tokens[1..], &text[1..]),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn it_is_its_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let glob = Glob::parse(&pattern).unwrap();
            let chars: Vec<_> = text.chars().collect();
            prop_assert_eq!(glob.matches(&text), by_definition(&glob.0, &chars), "{} on {}", pattern, text);
        }

        #[test]
        fn a_text_with_its_specials_escaped_is_itself_only(text in "[a-z*?\\[\\]\\\\!é-]{0,10}", other in "[a-z*?]{0,10}") {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert!(matches(&escaped, &text));
            prop_assert_eq!(matches(&escaped, &other), text == other);
        }

        #[test]
        fn no_pattern_makes_it_panic(pattern in ".{0,20}", text in ".{0,20}") {
            if let Ok(glob) = Glob::parse(&pattern) {
                let _ = glob.matches(&text);
            }
        }
    }
}
