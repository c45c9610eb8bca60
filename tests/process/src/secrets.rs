//! Marked secrets, and the search for them in everything that comes out of the program.
//!
//! A [`Marker`] is a text that is nowhere else. A [`Haul`] is what was collected, piece by piece; [`Haul::leaks`] looks in
//! it for pieces of markers in every form that a program may have put them into by accident.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Bytes of the part of a marker that is looked for.
const CORE_BYTES: usize = 24;
/// Bytes of it that are too many to be there by chance.
const PIECE_BYTES: usize = 12;
/// Bytes between two pieces: whatever has 18 bytes of the core in it has one of them whole.
const PIECE_EVERY: usize = 6;

/// A secret that can be told from any other text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Marker {
    name: String,
    core: String,
    text: String,
}

/// Where something of a marker was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leak {
    /// Whose.
    pub marker: String,
    /// How it was written.
    pub form: &'static str,
    /// The piece of the haul.
    pub from: String,
    /// What stands around it.
    pub around: String,
}

/// Everything that came out.
#[derive(Clone, Debug, Default)]
pub struct Haul(Vec<Piece>);

#[derive(Clone, Debug)]
struct Piece {
    from: String,
    text: String,
}

impl Marker {
    /// A secret of the usual characters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with_tail(name, "/+=%")
    }

    /// A secret with characters that every notation escapes in its own way.
    #[must_use]
    pub fn odd(name: &str) -> Self {
        Self::with_tail(name, "/+=% \"quoted\" \\ <&>'é\ttab")
    }

    fn with_tail(name: &str, tail: &str) -> Self {
        // The same at every run, and no two names alike: a hash (FNV-1a), stretched.
        const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789";
        let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = usize::try_from(state >> 33).unwrap_or_default() % ALPHABET.len();
            char::from(ALPHABET[index])
        };
        let core: String = (0..CORE_BYTES).map(|_| letter()).collect();
        Self { name: name.to_owned(), text: format!("{core}{tail}"), core }
    }

    /// The whole secret.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part that is looked for, of letters and digits alone.
    #[must_use]
    pub fn core(&self) -> &str {
        &self.core
    }

    /// What is looked for: pieces of the core in each form.
    fn needles(&self) -> Vec<(&'static str, String)> {
        let starts = (0..=CORE_BYTES - PIECE_BYTES).step_by(PIECE_EVERY);
        starts.flat_map(|start| forms(&self.core.as_bytes()[start..start + PIECE_BYTES])).collect()
    }
}

/// How a text may be written.
fn forms(piece: &[u8]) -> Vec<(&'static str, String)> {
    let each = |before: &str| -> String { piece.iter().map(|byte| format!("{before}{byte:02x}")).collect() };
    let (hex, percent) = (each(""), each("%"));
    let list: Vec<String> = piece.iter().map(ToString::to_string).collect();
    let mut forms = vec![
        ("plain", String::from_utf8_lossy(piece).into_owned()),
        ("plain", String::from_utf8_lossy(piece).to_lowercase()),
        ("backwards", piece.iter().rev().copied().map(char::from).collect()),
        ("hex", hex.to_uppercase()),
        ("hex", hex),
        ("percent", percent.to_uppercase()),
        ("percent", percent),
        ("numbers", list.join(", ")),
        ("numbers", list.join(",")),
    ];
    for before in 0..3 {
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            // What stands before it is another text: of the characters of both only those count that are all ours.
            let encoded = engine.encode([&vec![0; before][..], piece].concat());
            let (first, last) = ((before * 8).div_ceil(6), (before + piece.len()) * 8 / 6);
            forms.push(("base64", encoded[first..last].to_owned()));
        }
    }
    forms.dedup();
    forms
}

impl Haul {
    /// Adds what came out somewhere.
    pub fn add(&mut self, from: impl Into<String>, text: impl Into<String>) {
        self.0.push(Piece { from: from.into(), text: text.into() });
    }

    /// Adds every file below a directory but those below `except`, and its names.
    pub fn add_files(&mut self, directory: &Path, except: &[&Path]) {
        for entry in fs::read_dir(directory).expect("a directory of our own") {
            let path = entry.expect("an entry").path();
            if except.contains(&&*path) {
                continue;
            }
            let from = path.display().to_string();
            self.add("a file's name", &*from);
            if path.is_dir() {
                self.add_files(&path, except);
            } else {
                // The program may have replaced it meanwhile.
                let bytes = fs::read(&path).unwrap_or_default();
                self.add(from, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }

    /// Every place where something of a marker is.
    #[must_use]
    pub fn leaks<'a>(&self, markers: impl IntoIterator<Item = &'a Marker>) -> Vec<Leak> {
        let mut leaks: Vec<Leak> = Vec::new();
        for marker in markers {
            for (form, needle) in marker.needles() {
                for piece in &self.0 {
                    let Some(at) = piece.text.find(&needle) else { continue };
                    let is_known = |leak: &Leak| {
                        (&*leak.marker, leak.form, &*leak.from) == (&*marker.name, form, &*piece.from)
                    };
                    if !leaks.iter().any(is_known) {
                        leaks.push(Leak {
                            marker: marker.name.clone(),
                            form,
                            from: piece.from.clone(),
                            around: around(&piece.text, at),
                        });
                    }
                }
            }
        }
        leaks
    }

    /// How much there is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|piece| piece.text.len() as u64).sum()
    }

    /// Whether some piece whose name has `from` in it has `text`.
    #[must_use]
    pub fn has(&self, from: &str, text: &str) -> bool {
        self.0.iter().any(|piece| piece.from.contains(from) && piece.text.contains(text))
    }

    /// Fails unless [`has`](Self::has).
    pub fn expect(&self, from: &str, text: &str) {
        let names: Vec<&str> = self.0.iter().map(|piece| &*piece.from).collect();
        assert!(self.has(from, text), "`{text}` is not in `{from}` of {names:#?}");
    }
}

fn around(text: &str, at: usize) -> String {
    let from = text.floor_char_boundary(at.saturating_sub(200));
    let to = text.floor_char_boundary(at + 200);
    text[from..to].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: String, marker: &Marker) -> Vec<&'static str> {
        let mut haul = Haul::default();
        haul.add("the log", "nothing to see");
        haul.add("the answer", text);
        haul.leaks([marker, &Marker::new("another")]).into_iter().map(|leak| leak.form).collect()
    }

    #[test]
    fn markers_are_theirs_alone() {
        let names: Vec<String> = (0..1_000).map(|number| format!("marker-{number}")).collect();
        let mut cores: Vec<String> = names.iter().map(|name| Marker::new(name).core).collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 1_000);
        let marker = Marker::odd("marker-1");
        assert!(marker.text().starts_with(marker.core()) && marker.text().len() > CORE_BYTES);
        assert_eq!(marker, Marker::odd("marker-1"));
    }

    #[test]
    fn a_marker_is_found_however_it_is_written() {
        let marker = Marker::odd("swordfish");
        let text = marker.text();
        let percent: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        for (written, form) in [
            (format!("key={text}, and so on"), "plain"),
            (format!("{:?}", Some(text)), "plain"),
            (text.to_lowercase(), "plain"),
            (text.chars().rev().collect(), "backwards"),
            (percent.clone(), "percent"),
            (percent.to_lowercase(), "percent"),
            (hex.clone(), "hex"),
            (hex.to_uppercase(), "hex"),
            (format!("{:?}", text.as_bytes()), "numbers"),
            (serde_json::to_string(text.as_bytes()).unwrap(), "numbers"),
        ] {
            assert_eq!(found(written.clone(), &marker), [form], "{written}");
        }
        for before in ["", "u", "us", "user", "user:"] {
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let written = format!("Basic {}", engine.encode(format!("{before}{text}")));
                assert_eq!(found(written.clone(), &marker), ["base64"], "{written}");
            }
        }
    }

    #[test]
    fn a_part_of_a_marker_is_found() {
        let marker = Marker::new("swordfish");
        for start in 0..CORE_BYTES - 18 {
            let part = &marker.core()[start..start + 18];
            assert_eq!(found(format!("…{part}…"), &marker), ["plain"], "from {start}");
        }
        assert!(found("no such thing: [redacted]".to_owned(), &marker).is_empty());
    }

    #[test]
    fn a_leak_says_where_it_is() {
        let marker = Marker::new("swordfish");
        let directory = tempfile::tempdir().unwrap();
        let (seen, unseen) = (directory.path().join("seen"), directory.path().join("unseen"));
        for below in [&seen, &unseen] {
            fs::create_dir(below).unwrap();
            fs::write(below.join("file"), [b"\xff\0", marker.text().as_bytes(), b"\xff"].concat()).unwrap();
        }
        let mut haul = Haul::default();
        haul.add_files(directory.path(), &[&unseen]);
        let leaks = haul.leaks([&marker]);
        assert_eq!(leaks.len(), 1, "{leaks:?}");
        assert_eq!(
            (&*leaks[0].marker, &*leaks[0].from),
            ("swordfish", &*seen.join("file").display().to_string())
        );
        assert!(leaks[0].around.contains(marker.core()));
        assert!(haul.has("seen/file", marker.core()) && !haul.has("unseen/file", ""));
    }
}
