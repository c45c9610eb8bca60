//! Certificates and keys as PEM, from a file or from the configuration itself.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret as _, SecretString};

use super::TlsError;
use crate::files::{self, ReadError};

/// The largest PEM file that is read, in bytes. A system's whole list of roots has about a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// PEM, and where it is.
#[derive(Clone, Debug)]
pub enum Pem {
    /// In this file, read whenever a configuration is made.
    File(PathBuf),
    /// Here. It may be a key, so it is not shown. Line breaks may have become spaces.
    Text(SecretString),
}

/// What PEM is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// Certificates.
    Certificates,
    /// A private key.
    Key,
}

impl Wanted {
    const fn description(self) -> &'static str {
        match self {
            Self::Certificates => "certificates (`-----BEGIN CERTIFICATE-----`)",
            Self::Key => "one unencrypted private key (`-----BEGIN PRIVATE KEY-----`)",
        }
    }
}

impl Pem {
    /// The file, if it is one.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()),
            Self::Text(_) => None,
        }
    }

    /// All certificates, at least one. Other sections, such as a key in the same file, are passed over.
    pub(super) fn certificates(
        &self,
        option: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.read(option)?;
        let wrong = |error: &pem::Error| self.wrong(option, Wanted::Certificates, &text, error);
        let certificates = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(&error))?;
        if certificates.is_empty() { Err(wrong(&pem::Error::NoItemsFound)) } else { Ok(certificates) }
    }

    /// The first private key.
    pub(super) fn private_key(&self, option: &'static str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read(option)?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| self.wrong(option, Wanted::Key, &text, &error))
    }

    fn read(&self, option: &'static str) -> Result<Cow<'_, [u8]>, TlsError> {
        let path = match self {
            Self::File(path) => path,
            Self::Text(text) => return Ok(unfolded(text.expose_secret())),
        };
        files::read(path, PEM_BYTES_MAX).map(Cow::Owned).map_err(|error| TlsError::Unreadable {
            option,
            path: path.clone(),
            reason: match error {
                ReadError::Io(error) => error.to_string(),
                ReadError::NotAFile { .. } => "it is not a regular file".to_owned(),
                ReadError::TooLarge { .. } => format!("it is larger than {PEM_BYTES_MAX} bytes"),
            }
            .into(),
        })
    }

    /// Why a text is not what is wanted.
    fn wrong(&self, option: &'static str, wanted: Wanted, text: &[u8], error: &pem::Error) -> TlsError {
        let has = |part: &str| text.windows(part.len()).any(|window| window == part.as_bytes());
        let found = if !matches!(error, pem::Error::NoItemsFound) {
            // What the reader quotes of a key stays unsaid: text of the configuration is not repeated.
            match self {
                Self::File(_) => format!("is damaged ({error})"),
                Self::Text(_) => "is damaged".to_owned(),
            }
        } else if has("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            "holds an encrypted private key".to_owned()
        } else if has("PRIVATE KEY-----") {
            "holds a private key".to_owned()
        } else if has("-----BEGIN CERTIFICATE-----") {
            "holds certificates".to_owned()
        } else {
            "holds nothing in PEM".to_owned()
        };
        TlsError::Content { option, path: self.path(), wanted, found: found.into() }
    }
}

/// The sentence about content that is not what is wanted.
pub(super) fn wrong_content(option: &str, path: Option<&Path>, wanted: Wanted, found: &str) -> String {
    let wanted = wanted.description();
    match path {
        Some(path) => {
            format!("`{option}` names `{}`, which {found}; give a PEM file with {wanted}", path.display())
        }
        None => format!("`{option}` {found}; give PEM text with {wanted}"),
    }
}

/// Text that stands in one line of a configuration, with spaces where lines ended, as PEM readers want it. Java's client
/// takes it like that, so there are such configurations.
fn unfolded(text: &str) -> Cow<'_, [u8]> {
    const MARK: &str = "-----";
    let mut lines = String::with_capacity(text.len() + MARK.len());
    let mut rest = text;
    while let Some((before, label, after)) = marker(rest) {
        let body = before.split_whitespace();
        // A line with a colon is a header, whose spaces mean something.
        let has_headers = before.contains(':');
        match has_headers {
            true => lines.push_str(before.trim_start()),
            false => body.for_each(|word| push_line(&mut lines, word)),
        }
        if !lines.is_empty() && !lines.ends_with('\n') {
            lines.push('\n');
        }
        push_line(&mut lines, &[MARK, label, MARK].concat());
        rest = after;
    }
    return if lines.is_empty() { Cow::Borrowed(text.as_bytes()) } else { Cow::Owned(lines.into_bytes()) };

    /// What stands before the next `-----LABEL-----`, the label, and what follows.
    fn marker(text: &str) -> Option<(&str, &str, &str)> {
        let (before, rest) = text.split_once(MARK)?;
        let (label, after) = rest.split_once(MARK)?;
        (label.starts_with("BEGIN ") || label.starts_with("END ")).then_some((before, label, after))
    }

    fn push_line(lines: &mut String, line: &str) {
        lines.push_str(line);
        lines.push('\n');
    }
}
