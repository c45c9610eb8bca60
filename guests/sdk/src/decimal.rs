//! Numbers with a fraction, from text and to text.
//!
//! The standard library's are fast and cost a policy 40 KB: as much as all the rest of it. Rules are read once, so
//! these are slow and small. Reading is exact all the same: the nearest number, ties to even.

use std::cmp::Ordering;

/// Digits beyond so many cannot change the number, only whether it is a tie.
const DIGITS_MAX: usize = 800;

/// A whole number without bounds: 32-bit digits, the smallest first, none of them zero at the end.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Natural(Vec<u32>);

impl Natural {
    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn multiply_by_power(&mut self, factor: u32, exponent: u32) {
        for _ in 0..exponent {
            self.multiply_add(factor, 0);
        }
    }

    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0_i64;
        for (n, digit) in self.0.iter_mut().enumerate() {
            borrow += i64::from(*digit) - i64::from(other.0.get(n).copied().unwrap_or(0));
            *digit = borrow as u32;
            borrow >>= 32;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn bits(&self) -> i32 {
        let top = self.0.last().map_or(0, |top| 32 - top.leading_zeros());
        (self.0.len().saturating_sub(1) * 32) as i32 + top as i32
    }
}

/// Reads a number that JSON's grammar accepts; `None` when it is too large.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (digits, exponent) = match text.find(['e', 'E']) {
        Some(at) => (text.get(..at)?, parse_exponent(text.get(at + 1..)?)),
        None => (text, 0),
    };
    let (mut natural, mut exponent, mut seen, mut lost) = (Natural(Vec::new()), exponent, 0, false);
    let mut in_fraction = false;
    for byte in digits.bytes() {
        let digit = u32::from(byte.wrapping_sub(b'0'));
        if byte == b'.' {
            in_fraction = true;
        } else if seen < DIGITS_MAX {
            natural.multiply_add(10, digit);
            seen += usize::from(seen > 0 || digit > 0);
            exponent = exponent.saturating_sub(i32::from(in_fraction));
        } else {
            lost |= digit > 0;
            exponent = exponent.saturating_add(i32::from(!in_fraction));
        }
    }
    if lost {
        // Whatever was lost is less than one in the last place, and more than none.
        natural.multiply_add(10, 1);
        exponent = exponent.saturating_sub(1);
    }
    let number = nearest(natural, exponent)?;
    Some(if negative { -number } else { number })
}

/// So large an exponent as makes no difference is as good as a larger one.
fn parse_exponent(text: &str) -> i32 {
    let digits = text.trim_start_matches(['+', '-']);
    let add = |sum: i32, byte: u8| sum.saturating_mul(10).saturating_add(i32::from(byte.wrapping_sub(b'0')));
    let exponent = digits.bytes().fold(0, add);
    if text.starts_with('-') { -exponent } else { exponent }
}

/// The number nearest to `natural` times ten to the `exponent`.
fn nearest(natural: Natural, exponent: i32) -> Option<f64> {
    // The decimal exponent of the leading digit, give or take one.
    let magnitude = exponent.saturating_add(natural.bits() * 3 / 10);
    if natural.0.is_empty() || magnitude < -330 {
        return Some(0.0);
    }
    if magnitude > 310 {
        return None;
    }
    let (mut above, mut below) = (natural, Natural(vec![1]));
    let scaled = if exponent >= 0 { &mut above } else { &mut below };
    scaled.multiply_by_power(10, exponent.unsigned_abs());
    // The number is `above / below * 2^power`, with a quotient of 1 or more and below 2.
    let mut power = above.bits() - below.bits();
    let shifted = if power >= 0 { &mut below } else { &mut above };
    shifted.multiply_by_power(2, power.unsigned_abs());
    if above.compare(&below) == Ordering::Less {
        above.multiply_add(2, 0);
        power -= 1;
    }
    // Very small numbers have fewer bits.
    let bits = (power + 1_075).min(53);
    if bits < 0 {
        return Some(0.0);
    }
    let mut mantissa = 0_u64;
    for _ in 0..bits {
        let bit = above.compare(&below) != Ordering::Less;
        if bit {
            above.subtract(&below);
        }
        mantissa = mantissa << 1 | u64::from(bit);
        above.multiply_add(2, 0);
    }
    // What is left has been doubled, so that it is half of the last place or more when it is not below `below`.
    let up = match above.compare(&below) {
        Ordering::Less => false,
        Ordering::Equal => mantissa % 2 == 1,
        Ordering::Greater => true,
    };
    let number = (mantissa + u64::from(up)) as f64 * power_of_two(power - bits + 1);
    number.is_finite().then_some(number)
}

/// Two to the `power`, from -1074 to 1023.
fn power_of_two(power: i32) -> f64 {
    if power >= -1_022 {
        f64::from_bits(((power + 1_023) as u64) << 52)
    } else {
        f64::from_bits(1 << (power + 1_074))
    }
}

/// Numbers up to this are whole numbers exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes a number in as few digits as name it, and in seven when that takes more than JSON's usual ones.
///
/// Exact for what people write, such as `0.1`, `250` or `1.5`; about right for a number that a computation left.
#[must_use]
pub fn format_number(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "not a number" } else { "infinity" }.to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let size = number.abs();
    let mut scale = 1.0;
    for places in 0..=15_usize {
        let scaled = size * scale;
        if scaled >= WHOLE_MAX {
            break;
        }
        let whole = (scaled + 0.5) as u64;
        // Both are exact, so the quotient is the number nearest to these digits.
        if whole as f64 / scale == size {
            return with_point(sign, whole, places);
        }
        scale *= 10.0;
    }
    about(sign, size)
}

/// Writes a number with so many places behind the point, rounded: for texts in which only a few matter.
#[must_use]
pub fn format_rounded(number: f64, places: u8) -> String {
    let scale = 10_u64.pow(u32::from(places.min(9))) as f64;
    let scaled = number.abs() * scale;
    if scaled < WHOLE_MAX {
        let whole = (scaled + 0.5) as u64;
        let sign = if number < 0.0 && whole > 0 { "-" } else { "" };
        return with_point(sign, whole, usize::from(places.min(9)));
    }
    format_number(number)
}

fn with_point(sign: &str, whole: u64, places: usize) -> String {
    let mut text = whole.to_string();
    while text.len() <= places {
        text.insert(0, '0');
    }
    if places > 0 {
        text.insert(text.len() - places, '.');
    }
    text.insert_str(0, sign);
    text
}

/// Seven digits and an exponent.
fn about(sign: &str, size: f64) -> String {
    let (mut size, mut exponent) = (size, 0_i32);
    while size >= 10.0 {
        (size, exponent) = (size / 10.0, exponent + 1);
    }
    while size < 1.0 {
        (size, exponent) = (size * 10.0, exponent - 1);
    }
    let digits = with_point(sign, (size * 1e6 + 0.5) as u64, 6);
    format!("{digits}e{exponent}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the standard library reads, with numbers that are too large refused.
    fn expected(text: &str) -> Option<u64> {
        text.parse::<f64>().ok().filter(|number| number.is_finite()).map(f64::to_bits)
    }

    fn check(text: &str) {
        assert_eq!(parse(text).map(f64::to_bits), expected(text), "{text}");
    }

    #[test]
    fn the_hard_ones_are_read_as_the_standard_library_reads_them() {
        for text in [
            "0",
            "-0",
            "0.0",
            "0e5",
            "1",
            "-2.5e3",
            "0.1",
            "0.1e-0",
            "123456789012345678901234567890",
            "9007199254740993",
            "9007199254740992.99999999999999999999",
            "9007199254740993.00000000000000000001",
            "1.7976931348623157e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "179769313486231570814527423731704356798070e267",
            "1e309",
            "1e999999999999999999",
            "2.2250738585072014e-308",
            "2.2250738585072011e-308",
            "2.225073858507201136057409796709131975934819546351645648023426109724822e-308",
            "4.9e-324",
            "5e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "2.5e-324",
            "1e-400",
            "1e-99999999999",
            "6.631236871469758276785396630275967242411101e-316",
            "0.000000000000000000000000000000000000000000000000000000000000000001e-258",
            "8.5e+0022",
        ] {
            check(text);
        }
    }

    #[test]
    fn digits_past_the_last_that_is_kept_still_break_a_tie() {
        let smallest = format!("{:.1100}", f64::from_bits(1));
        check(smallest.trim_end_matches('0'));
        let half = "9007199254740993";
        check(&format!("{half}.{}", "0".repeat(2_000)));
        check(&format!("{half}.{}1", "0".repeat(2_000)));
        check(&format!("{half}{}e-2000", "0".repeat(2_000)));
        check(&format!("0.{}1", "0".repeat(400)));
        check(&format!("{}e-5000", "7".repeat(5_200)));
    }

    #[test]
    fn numbers_are_written_as_people_write_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (-2.5, "-2.5"),
            (1e9, "1000000000"),
            (1e15, "1000000000000000"),
            (0.30000000000000004, "3.000000e-1"),
            (1e300, "1.000000e300"),
            (f64::INFINITY, "infinity"),
            (f64::NAN, "not a number"),
        ] {
            assert_eq!(format_number(number), text);
        }
        assert_eq!(format_rounded(12.345, 0), "12");
        assert_eq!(format_rounded(0.066, 2), "0.07");
        assert_eq!(format_rounded(-0.001, 2), "0.00");
        assert_eq!(format_rounded(1e17, 2), "1.000000e17");
    }

    proptest! {
        #[test]
        fn reading_is_exact(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            for text in [number.to_string(), format!("{number:e}"), format!("{number:.30}")] {
                prop_assert_eq!(parse(&text).map(f64::to_bits), expected(&text), "{}", text);
            }
        }

        #[test]
        fn halfway_numbers_and_their_neighbours_are_read_exactly(half in 1_u64 << 53..1 << 54, power in 0_u32..31, more in "[0-9]{0,3}") {
            // An odd number of 54 bits is halfway between two of 53; five to the power over ten to the power halves it.
            let half = u128::from(half | 1);
            check(&(half << power).to_string());
            check(&((half << power) + 1).to_string());
            check(&((half << power) - 1).to_string());
            check(&format!("{}{more}e-{power}", half * 5_u128.pow(power)));
        }

        #[test]
        fn any_digits_are_read_exactly(
            whole in "0|[1-9][0-9]{0,40}", fraction in "(\\.[0-9]{1,40})?", exponent in "([eE][+-]?[0-9]{1,3})?",
        ) {
            let text = format!("{whole}{fraction}{exponent}");
            prop_assert_eq!(parse(&text).map(f64::to_bits), expected(&text), "{}", text);
        }

        #[test]
        fn short_numbers_are_written_as_the_standard_library_writes_them(whole in -10_000_000_i64..10_000_000, places in 0_u32..8) {
            let number = whole as f64 / 10_f64.powi(places as i32);
            prop_assert_eq!(format_number(number), (number + 0.0).to_string());
        }

        #[test]
        fn what_is_written_is_json(number: f64) {
            if number.is_finite() {
                let text = format_number(number);
                let read: f64 = text.parse().unwrap();
                prop_assert!((read - number).abs() <= number.abs() * 1e-6, "{} as {}", number, text);
            }
        }
    }
}
