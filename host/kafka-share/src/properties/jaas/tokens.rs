//! The words of a login's text, as Java's client tells them apart.
//!
//! Source of facts: `JaasConfig` of Kafka's Java client, which reads with a `java.io.StreamTokenizer`: letters, digits, `.`, `-`,
//! `_` and `$` make words, what begins with a digit is a number, `//`, `/` and `/* */` begin comments, quotes end with their
//! line at the latest, and backslashes stand before letters of C and up to three octal digits.

use std::iter::Peekable;
use std::str::Chars;

/// One of them.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Token {
    /// A bare word.
    Word(String),
    /// What stood in quotes.
    Quoted(String),
    /// `=`.
    Equals,
    /// `;`.
    End,
    /// A number without quotes, which Java's client does not take for a value.
    Number,
    /// A quote that the text ends in.
    Unclosed,
    /// Anything else.
    Other,
}

/// Goes through a text.
pub(super) struct Tokens<'a>(Peekable<Chars<'a>>);

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text.chars().peekable())
    }

    /// Goes over a comment, whose first slash is gone already.
    fn skip_comment(&mut self) {
        if self.0.next_if_eq(&'*').is_some() {
            let mut before = ' ';
            for next in self.0.by_ref() {
                if before == '*' && next == '/' {
                    return;
                }
                before = next;
            }
        } else {
            // A lone slash is a comment, too.
            while self.0.next_if(|next| !is_line_end(*next)).is_some() {}
        }
    }

    fn quoted(&mut self, quote: char) -> Token {
        let mut value = String::new();
        loop {
            match self.0.peek() {
                None => return Token::Unclosed,
                // The line's end stays, and is a blank.
                Some(end) if is_line_end(*end) => return Token::Quoted(value),
                Some(_) => {}
            }
            match self.0.next() {
                None => return Token::Unclosed,
                Some(end) if end == quote => return Token::Quoted(value),
                Some('\\') => match self.escaped() {
                    Some(meant) => value.push(meant),
                    None => return Token::Unclosed,
                },
                Some(other) => value.push(other),
            }
        }
    }

    /// What is meant behind a backslash.
    fn escaped(&mut self) -> Option<char> {
        Some(match self.0.next()? {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            first @ '0'..='7' => {
                let mut code = octal(first);
                // Up to 377: three digits only after one of 0 to 3.
                for _ in 0..if first <= '3' { 2 } else { 1 } {
                    let Some(digit) = self.0.next_if(|next| matches!(next, '0'..='7')) else { break };
                    code = code * 8 + octal(digit);
                }
                char::from(code)
            }
            itself => itself,
        })
    }

    /// Whether it is a number: a minus alone is not.
    fn number(&mut self, first: char) -> Token {
        let is_digit = |c: &char| c.is_ascii_digit() || *c == '.';
        if first == '-' && self.0.peek().is_none_or(|next| !is_digit(next)) {
            return Token::Other;
        }
        let mut has_dot = first == '.';
        while self
            .0
            .next_if(|next| next.is_ascii_digit() || (*next == '.' && !std::mem::replace(&mut has_dot, true)))
            .is_some()
        {}
        Token::Number
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        loop {
            return Some(match self.0.next()? {
                '\0'..=' ' => continue,
                '/' => {
                    self.skip_comment();
                    continue;
                }
                '=' => Token::Equals,
                ';' => Token::End,
                quote @ ('"' | '\'') => self.quoted(quote),
                first @ ('0'..='9' | '.' | '-') => self.number(first),
                first if is_word(first) => {
                    let mut word = String::from(first);
                    while let Some(next) =
                        self.0.next_if(|next| is_word(*next) || matches!(next, '0'..='9' | '.' | '-'))
                    {
                        word.push(next);
                    }
                    Token::Word(word)
                }
                _ => Token::Other,
            });
        }
    }
}

const fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

/// Whether a word may begin with it.
const fn is_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$') || c >= '\u{a0}'
}

const fn octal(digit: char) -> u8 {
    // A digit of 0 to 7, in one byte.
    (digit as u8) - b'0'
}
