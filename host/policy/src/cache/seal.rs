//! The last bytes of a compiled file: a digest of the others, and what kind of file it is.
//!
//! They are the last and not the first so that the file is, to everybody else, machine code like any other, and is
//! refused as such when somebody offers it as a policy.

use sha2::{Digest as _, Sha256};

/// Ends a file of this form.
const MARK: &[u8] = b"tidegate-compiled-1";

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// `compiled` with its seal.
pub(super) fn sealed(mut compiled: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&compiled);
    compiled.extend_from_slice(&digest);
    compiled.extend_from_slice(MARK);
    compiled
}

/// What was sealed, if every byte of it is as it was.
pub(super) fn opened(sealed: &[u8]) -> Option<&[u8]> {
    let rest = sealed.strip_suffix(MARK)?;
    let (compiled, digest) = rest.split_at_checked(rest.len().checked_sub(DIGEST_BYTES)?)?;
    (*Sha256::digest(compiled) == *digest).then_some(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_opened() {
        assert_eq!(opened(&sealed(b"code".to_vec())), Some(&b"code"[..]));
        assert_eq!(opened(&sealed(Vec::new())), Some(&b""[..]));
    }

    #[test]
    fn every_changed_missing_or_added_byte_is_noticed() {
        let whole = sealed((0..200).collect());
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(opened(&changed), None, "byte {at} changed");
            assert_eq!(opened(&whole[..at]), None, "cut at {at}");
            let mut longer = whole.clone();
            longer.insert(at, 0);
            assert_eq!(opened(&longer), None, "one more at {at}");
        }
    }
}
