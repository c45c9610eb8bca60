//! What a broker said instead of doing what was asked.

use std::fmt;

use crate::ErrorCode;

/// A broker's error with its words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Complaint {
    /// The code.
    pub code: ErrorCode,
    /// The broker's own words, if it had some.
    pub message: Option<Box<str>>,
}

impl Complaint {
    pub(crate) fn new(code: ErrorCode, message: Option<&str>) -> Self {
        Self { code, message: message.filter(|message| !message.is_empty()).map(Into::into) }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}
