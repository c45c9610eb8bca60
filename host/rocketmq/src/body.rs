//! Bodies: checked against their digest as carried, then decompressed.

use std::io::Read as _;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use sha1::Sha1;
use tidegate_model::BodyState;
use tidegate_proto::rocketmq as proto;

/// Largest body after decompression, in bytes: sixteen times what a broker takes by default (4 MiB), so that an
/// honest compressed body fits and a bomb does not.
pub(crate) const DECODED_BYTES_MAX: usize = 64 << 20;

/// Checks and decompresses. A body that does not fit its digest or cannot be decompressed comes back as carried,
/// marked with the reason: it is never decoded silently.
pub(crate) fn decode(
    body: Bytes,
    encoding: i32,
    digest: Option<&proto::Digest>,
    bytes_max: usize,
) -> (Bytes, BodyState) {
    if let Some(reason) = digest.and_then(|digest| mismatch(&body, digest)) {
        return (body, BodyState::Corrupted { reason });
    }
    if encoding != i32::from(proto::Encoding::Gzip) {
        return (body, BodyState::Intact);
    }
    match decompress(&body, bytes_max) {
        Ok(decoded) => (decoded, BodyState::Intact),
        Err(reason) => (body, BodyState::Corrupted { reason }),
    }
}

fn mismatch(body: &[u8], digest: &proto::Digest) -> Option<Box<str>> {
    let (name, matches) = match digest.r#type() {
        // Java drops leading zeros, so the text is compared as a number.
        proto::DigestType::Crc32 => {
            let expected = u32::from_str_radix(&digest.checksum, 16);
            ("CRC32", expected == Ok(crc32fast::hash(body)))
        }
        proto::DigestType::Md5 => ("MD5", is_hex_of(&digest.checksum, &Md5::digest(body))),
        proto::DigestType::Sha1 => ("SHA1", is_hex_of(&digest.checksum, &Sha1::digest(body))),
        proto::DigestType::Unspecified => return None,
    };
    (!matches).then(|| format!("its {name} is not the `{:.64}` that came with it", digest.checksum).into())
}

fn is_hex_of(text: &str, bytes: &[u8]) -> bool {
    let digits = |byte: u8| [byte >> 4, byte & 15];
    let expected = bytes.iter().copied().flat_map(digits);
    let given = text.bytes().map(|c| char::from(c).to_digit(16));
    text.len() == bytes.len() * 2 && given.eq(expected.map(|digit| Some(u32::from(digit))))
}

/// The flag only says that a body is compressed: the codec shows in its first bytes. Old producers use zlib.
fn decompress(body: &[u8], bytes_max: usize) -> Result<Bytes, Box<str>> {
    match body {
        [0x1f, 0x8b, ..] => read_all("gzip", flate2::read::MultiGzDecoder::new(body), bytes_max),
        [0x78, ..] => read_all("zlib", flate2::read::ZlibDecoder::new(body), bytes_max),
        [0x04, 0x22, 0x4d, 0x18, ..] => Err("it is compressed with lz4, which is not supported".into()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err("it is compressed with zstd, which is not supported".into()),
        _ => Err("it is said to be compressed, but is neither gzip, zlib, lz4 nor zstd".into()),
    }
}

fn read_all(codec: &str, reader: impl std::io::Read, bytes_max: usize) -> Result<Bytes, Box<str>> {
    let mut decoded = Vec::new();
    // One byte more than allowed, to tell "just fits" from "goes on".
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(limit)
        .read_to_end(&mut decoded)
        .map_err(|error| format!("it cannot be decompressed as {codec}: {error}"))?;
    if decoded.len() > bytes_max {
        return Err(format!("it has more than {bytes_max} bytes once decompressed").into());
    }
    Ok(decoded.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    const HELLO: &[u8] = b"hello rocketmq";
    const GZIP: i32 = proto::Encoding::Gzip as i32;
    const IDENTITY: i32 = proto::Encoding::Identity as i32;

    #[test]
    fn recorded_digests_match() {
        for (kind, checksum) in [
            (proto::DigestType::Md5, "98062D04DAC784C63CEEB3CDB2B1FE4A"),
            (proto::DigestType::Md5, "98062d04dac784c63ceeb3cdb2b1fe4a"),
            (proto::DigestType::Sha1, "B167B897BBE888020A4B90B1EAB964B2CED3A4AD"),
            (proto::DigestType::Crc32, "F3307B09"),
        ] {
            assert_eq!(checked(HELLO, kind, checksum), BodyState::Intact, "{checksum}");
        }
    }

    /// The CRC32 of `m21` begins with a zero, which Java drops.
    #[test]
    fn crc32_is_compared_as_a_number() {
        assert_eq!(checked(b"m21", proto::DigestType::Crc32, "3E0D52A"), BodyState::Intact);
        assert_eq!(checked(b"m21", proto::DigestType::Crc32, "03E0D52A"), BodyState::Intact);
        assert!(is_corrupted(&checked(b"m21", proto::DigestType::Crc32, "13E0D52A")));
        assert!(is_corrupted(&checked(b"m21", proto::DigestType::Crc32, "")));
    }

    #[test]
    fn a_wrong_digest_is_named() {
        let state = checked(b"other", proto::DigestType::Md5, "98062D04DAC784C63CEEB3CDB2B1FE4A");
        let BodyState::Corrupted { reason } = state else { panic!("intact") };
        assert!(reason.contains("MD5"), "{reason}");
        assert!(is_corrupted(&checked(HELLO, proto::DigestType::Md5, "98062D04")));
        assert_eq!(checked(HELLO, proto::DigestType::Unspecified, "whatever"), BodyState::Intact);
    }

    #[test]
    fn gzip_and_zlib_come_under_the_same_flag() {
        for packed in [gzip(HELLO), zlib(HELLO)] {
            let (body, state) = decode(packed.into(), GZIP, None, 1_000);
            assert_eq!((&*body, state), (HELLO, BodyState::Intact));
        }
        let (body, state) = decode(gzip(HELLO).into(), IDENTITY, None, 1_000);
        assert_eq!((&*body, state), (&*gzip(HELLO), BodyState::Intact));
    }

    /// The digest is over the body as carried, before decompression.
    #[test]
    fn the_digest_is_of_the_compressed_body() {
        let packed = gzip(HELLO);
        let checksum: String = Md5::digest(&packed).iter().map(|byte| format!("{byte:02X}")).collect();
        let digest = proto::Digest { r#type: proto::DigestType::Md5.into(), checksum };
        let (body, state) = decode(packed.into(), GZIP, Some(&digest), 1_000);
        assert_eq!((&*body, state), (HELLO, BodyState::Intact));
    }

    #[test]
    fn unsupported_codecs_are_named_and_the_bytes_kept() {
        for (packed, name) in [(&b"\x04\x22\x4d\x18abc"[..], "lz4"), (&b"\x28\xb5\x2f\xfdabc"[..], "zstd")] {
            let (body, state) = decode(Bytes::from_static(packed), GZIP, None, 1_000);
            let BodyState::Corrupted { reason } = state else { panic!("intact") };
            assert!(reason.contains(name), "{reason}");
            assert_eq!(&*body, packed);
        }
        assert!(is_corrupted(&decode(Bytes::from_static(b"plain"), GZIP, None, 1_000).1));
        assert!(is_corrupted(&decode(Bytes::new(), GZIP, None, 1_000).1));
    }

    #[test]
    fn a_bomb_is_cut_off() {
        let packed = gzip(&[0; 100_000]);
        assert!(packed.len() < 1_000);
        assert!(is_corrupted(&decode(packed.clone().into(), GZIP, None, 99_999).1));
        assert_eq!(decode(packed.into(), GZIP, None, 100_000).1, BodyState::Intact);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>, encoding in 0..4, checksum in "[0-9A-Fa-f]{0,40}", kind in 0..5) {
            let digest = proto::Digest { r#type: kind, checksum };
            let _ = decode(body.into(), encoding, Some(&digest), 10_000);
        }

        #[test]
        fn compressed_bodies_round_trip(body: Vec<u8>) {
            for packed in [gzip(&body), zlib(&body)] {
                let (decoded, state) = decode(packed.into(), GZIP, None, 1 << 20);
                prop_assert_eq!((&*decoded, state), (&*body, BodyState::Intact));
            }
        }
    }

    fn checked(body: &[u8], kind: proto::DigestType, checksum: &str) -> BodyState {
        let digest = proto::Digest { r#type: kind.into(), checksum: checksum.to_owned() };
        decode(Bytes::copy_from_slice(body), IDENTITY, Some(&digest), 1_000).1
    }

    fn is_corrupted(state: &BodyState) -> bool {
        matches!(state, BodyState::Corrupted { .. })
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).expect("a vector");
        encoder.finish().expect("a vector")
    }

    fn zlib(body: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).expect("a vector");
        encoder.finish().expect("a vector")
    }
}
