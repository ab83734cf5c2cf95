//! Formats figures for findings, and for programs that print findings beside figures of their own.
//!
//! Sizes are binary (`64 KiB`). Bit rates are decimal (`94.2 Gb/s`), as link speeds are. A figure
//! has three significant digits: no measurement here is more precise.

/// Formats a size that was given or fixed, exactly: `64 KiB`, or `5000 B` if it is not a multiple
/// of a unit.
pub fn size(bytes: u64) -> String {
    let is_round = |(unit, _): &&(u64, &str)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match BINARY.iter().find(is_round) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// Formats an amount that was moved: `1.18 MiB`.
pub fn amount(bytes: u64) -> String {
    match BINARY.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", digits(bytes as f64 / *unit as f64)),
        None => format!("{bytes} B"),
    }
}

const BINARY: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// Formats a bit rate: `94.2 Gb/s`, in units of 10⁹ bits.
pub fn bit_rate(bits_per_second: f64) -> String {
    let (number, prefix) = scaled(bits_per_second);
    format!("{number} {prefix}b/s")
}

/// Formats a duration: `4.81 µs`, `1.20 ms`, `12.0 s`.
pub fn duration(ns: f64) -> String {
    // A value that rounds to 1000 of one unit is written as 1 of the next.
    let units = [(1e3, "µs"), (1e6, "ms")];
    match units.iter().find(|(unit, _)| ns / unit < 999.5) {
        Some((unit, name)) => format!("{} {name}", digits(ns / unit)),
        None => format!("{} s", digits(ns / 1e9)),
    }
}

/// Formats a number with three significant digits, and every digit before the point: `0.0123`,
/// `1.23`, `123`, `12345`.
pub fn digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".to_owned();
    }
    // Rounding may carry: 9.996 is 10.0, not 10.00.
    let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
    let places = 2 - rounded.abs().log10().floor() as i32;
    format!("{number:.0$}", places.clamp(0, 9) as usize)
}

/// Formats a number with the decimal prefix that leaves at most three digits before the point.
pub fn scaled(number: f64) -> (String, &'static str) {
    let prefixes = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
    match prefixes.iter().find(|(unit, _)| number / unit < 999.5) {
        Some((unit, prefix)) => (digits(number / unit), prefix),
        None => (digits(number / 1e12), "T"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_exact_and_an_amount_is_short() {
        let sizes = [1, 1000, 1024, 4096, 5000, 65536, 1 << 20, 3 << 30, 1 << 40].map(size);
        assert_eq!(sizes, ["1 B", "1000 B", "1 KiB", "4 KiB", "5000 B", "64 KiB", "1 MiB", "3 GiB", "1 TiB"]);
        let amounts = [0, 1023, 1024, 5000, 1_234_567, 16 << 30].map(amount);
        assert_eq!(amounts, ["0 B", "1023 B", "1.00 KiB", "4.88 KiB", "1.18 MiB", "16.0 GiB"]);
    }

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        let rates = [0.0, 13.1e6, 94.24e9, 0.9996e9, 400e9, 1.6e12].map(bit_rate);
        assert_eq!(rates, ["0 b/s", "13.1 Mb/s", "94.2 Gb/s", "1.00 Gb/s", "400 Gb/s", "1.60 Tb/s"]);
    }

    #[test]
    fn durations_carry_into_the_next_unit() {
        let durations = [0.0, 270.0, 4_812.0, 999_400.0, 999_600.0, 1.2e9, 95e9, 4000e9].map(duration);
        assert_eq!(
            durations,
            ["0 µs", "0.270 µs", "4.81 µs", "999 µs", "1.00 ms", "1.20 s", "95.0 s", "4000 s"]
        );
    }

    #[test]
    fn rounding_leaves_three_digits() {
        let rounded = [0.012_345, 0.9999, 9.996, 9.994, 99.96, 999.6, 1234.5].map(digits);
        assert_eq!(rounded, ["0.0123", "1.00", "10.0", "9.99", "100", "1000", "1234"]);
        assert_eq!(digits(-12.34), "-12.3");
        assert_eq!(digits(f64::NAN), "0");
    }
}
