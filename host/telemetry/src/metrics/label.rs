//! Labels stay few and harmless: words from closed sets, and names from the configuration.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// The longest label value, in characters. The configuration's own bound for names.
const NAME_CHARS_MAX: usize = 64;

/// The value of a label that is a name from the configuration: a flow, a policy, a source, a sink.
///
/// Whatever else is put in (a key, a topic, an address with a password) is encoded as `other`, so that a slip
/// neither multiplies series nor leaks.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Name(Arc<str>);

impl From<&Arc<str>> for Name {
    fn from(name: &Arc<str>) -> Self {
        Self(Arc::clone(name))
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(if is_name(&self.0) { &self.0 } else { "other" })
    }
}

/// Makes closed sets of causes into labels: `LeaseGone` becomes `lease_gone`, as people write them in queries.
macro_rules! words {
    ($($set:ty),+ $(,)?) => {
        $(impl prometheus_client::encoding::EncodeLabelValue for $set {
            fn encode(
                &self,
                encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
            ) -> Result<(), std::fmt::Error> {
                crate::metrics::encode_word(self, encoder)
            }
        })+
    };
}
pub(crate) use words;

/// Writes the name of an enum's variant in snake case.
pub(crate) fn encode_word(variant: &impl fmt::Debug, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
    for (at, letter) in format!("{variant:?}").chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            encoder.write_char('_')?;
        }
        encoder.write_char(letter.to_ascii_lowercase())?;
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= NAME_CHARS_MAX && text.chars().all(allowed)
}
