//! Figures as a person writes and reads them.
//!
//! Sizes are binary (`64 KiB`), rates of bits decimal (`94.2 Gb/s`), as links are sold. A figure has three significant digits: more
//! than that no measurement here is good for.

pub(crate) mod parse;
pub(crate) mod sweep;

use farreach_doctor::figures::scaled;

pub(crate) use farreach_doctor::figures::{amount, bit_rate, digits, duration, size};

/// `11.0 GiB/s`
pub(crate) fn byte_rate(bytes_per_second: f64) -> String {
    // A rate below one byte a second is none.
    format!("{}/s", amount(bytes_per_second.round() as u64))
}

/// `1.23 M/s`, and `950 /s` below a thousand.
pub(crate) fn operation_rate(operations_per_second: f64) -> String {
    let (number, prefix) = scaled(operations_per_second);
    format!("{number} {prefix}/s")
}

/// The number alone, for a column of which the heading says µs.
pub(crate) fn microseconds(ns: f64) -> String {
    digits(ns / 1e3)
}

/// A part of one: `99.9 %`, and `<0.1 %` for what is little but not nothing.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 0.05 { "<0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        let rates = [0.0, 11.777e9, 2048.0].map(byte_rate);
        assert_eq!(rates, ["0 B/s", "11.0 GiB/s", "2.00 KiB/s"]);
        let rates = [950.4, 999.6, 180_400.0, 1_234_000.0].map(operation_rate);
        assert_eq!(rates, ["950 /s", "1.00 k/s", "180 k/s", "1.23 M/s"]);
    }

    #[test]
    fn microseconds_are_without_a_unit() {
        assert_eq!([270.0, 12_345.0, 1_234_567.0].map(microseconds), ["0.270", "12.3", "1235"]);
    }

    #[test]
    fn little_is_not_nothing() {
        assert_eq!(
            [0.0, 0.0001, 0.0005, 0.999, 1.0].map(percent),
            ["0.0 %", "<0.1 %", "0.1 %", "99.9 %", "100.0 %"]
        );
    }
}
