//! Changes to inputs: of bytes for any format, of lines and words for texts.

use crate::random::Random;

/// Longest input that is made; every format's own bound is tried by its own seed.
const BYTES_MAX: usize = 16 * 1024;

/// Numbers and bytes at which decoders tend to break.
const BYTES: [&[u8]; 14] = [
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x08",
    b"\xfb\xff\xff",
    b"\xfc\xff\xff\xff\xff",
    b"\xfd\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xc3\x28",
    b"\xe2\x82",
    "\u{feff}".as_bytes(),
    "\u{202e}".as_bytes(),
    b"\r\n",
];
const WORDS: [&str; 18] = [
    "0",
    "-1",
    "9223372036854775807",
    "1e400",
    "nan",
    "\"\"",
    "\"",
    "'''",
    "[",
    "]",
    "[[",
    "{}",
    "= ",
    ".",
    "\n",
    "#",
    "true",
    "1970-01-01",
];

/// Changes `input` in one to four places, with pieces of `other` among what is put in.
pub(crate) fn bytes(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = u8::try_from(random.below(256)).unwrap_or_default(),
            2 => input.truncate(at),
            3 => insert(input, at, random.pick(&BYTES)),
            4 => {
                let from = random.below(other.len() + 1);
                let length = random.below((other.len() - from).min(64) + 1);
                insert(input, at, &other[from..from + length]);
            }
            5 => {
                let end = at + random.below((input.len() - at).min(64) + 1);
                input.drain(at..end);
            }
            6 => {
                let end = at + random.below((input.len() - at).min(64) + 1);
                let piece = input[at..end].to_vec();
                insert(input, at, &piece);
            }
            _ => {
                let byte = u8::try_from(random.below(256)).unwrap_or_default();
                let piece = vec![byte; random.below(200)];
                insert(input, at, &piece);
            }
        }
    }
    input.truncate(BYTES_MAX);
}

/// Changes a text line by line and word by word, now and then byte by byte.
pub(crate) fn text(random: &mut Random, input: &str, other: &str) -> String {
    let mut lines: Vec<String> = input.lines().map(str::to_owned).collect();
    let others: Vec<&str> = other.lines().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(lines.len() + 1);
        let second = random.below(lines.len() + 1);
        match random.below(6) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines.insert(second, lines[at].clone()),
            2 if at < lines.len() && second < lines.len() => lines.swap(at, second),
            3 if !others.is_empty() => lines.insert(at, others[random.below(others.len())].to_owned()),
            _ if at < lines.len() => lines[at] = words(random, &lines[at]),
            _ => lines.push((*random.pick(&WORDS)).to_owned()),
        }
    }
    let text = lines.join("\n");
    if random.once_in(4) {
        let mut raw = text.into_bytes();
        bytes(random, &mut raw, other.as_bytes());
        return String::from_utf8_lossy(&raw).into_owned();
    }
    text
}

fn words(random: &mut Random, line: &str) -> String {
    let mut words: Vec<&str> = line.split_inclusive([' ', '.', '=', '"']).collect();
    let at = random.below(words.len() + 1);
    match random.below(3) {
        0 if at < words.len() => drop(words.remove(at)),
        1 if at < words.len() => words[at] = random.pick(&WORDS),
        _ => words.insert(at, random.pick(&WORDS)),
    }
    words.concat()
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let make = |seed| {
            let mut random = Random::new(seed);
            let mut input = b"an input of some length".to_vec();
            for _ in 0..100 {
                bytes(&mut random, &mut input, b"another");
            }
            (input, text(&mut random, "a = 1\nb = 2\n", "c = 3\n"))
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }

    #[test]
    fn inputs_stay_bounded() {
        let mut random = Random::new(7);
        let mut input = Vec::new();
        for _ in 0..10_000 {
            bytes(&mut random, &mut input, &[1; 64]);
            assert!(input.len() <= BYTES_MAX);
        }
    }
}
