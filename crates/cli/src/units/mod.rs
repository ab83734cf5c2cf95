//! Figures as a person writes and reads them.
//!
//! Sizes are binary (`64 KiB`), rates of bits decimal (`94.2 Gb/s`), as links are sold. A figure has three significant digits: more
//! than that no measurement here is good for.

pub(crate) mod parse;
pub(crate) mod sweep;

use std::time::{SystemTime, UNIX_EPOCH};

/// A size as it was typed or fixed: exact. `64 KiB`, and `5000 B` where the number is not a round one.
pub(crate) fn size(bytes: u64) -> String {
    let is_round = |(unit, _): &&(u64, &str)| bytes >= *unit && bytes.is_multiple_of(*unit);
    match BINARY.iter().find(is_round) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// How much was moved: `1.18 MiB`.
pub(crate) fn amount(bytes: u64) -> String {
    match BINARY.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", digits(bytes as f64 / *unit as f64)),
        None => format!("{bytes} B"),
    }
}

/// A time as RFC 3339 has it, in UTC to the millisecond: `2026-11-17T16:08:00.123Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    // A clock before 1970 was never set: it counts as 1970.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Year, month and day of a day since 1970, by the Gregorian calendar. Years begin in March here, so that the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const BINARY: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// `94.2 Gb/s`, of 10⁹ bits.
pub(crate) fn bit_rate(bits_per_second: f64) -> String {
    let (number, prefix) = scaled(bits_per_second);
    format!("{number} {prefix}b/s")
}

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

/// `4.81 µs`, `1.20 ms`, `12.0 s`
pub(crate) fn duration(ns: f64) -> String {
    // What rounds to a thousand of one unit is one of the next.
    let units = [(1e3, "µs"), (1e6, "ms")];
    match units.iter().find(|(unit, _)| ns / unit < 999.5) {
        Some((unit, name)) => format!("{} {name}", digits(ns / unit)),
        None => format!("{} s", digits(ns / 1e9)),
    }
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

/// Three significant digits, and every digit before the point: `0.0123`, `1.23`, `123`, `12345`.
pub(crate) fn digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".to_owned();
    }
    // Rounding may carry: 9.996 is 10.0, not 10.00.
    let rounded: f64 = format!("{number:.2e}").parse().unwrap_or(number);
    let places = 2 - rounded.abs().log10().floor() as i32;
    format!("{number:.0$}", places.clamp(0, 9) as usize)
}

/// With the prefix of a thousand that leaves at most three digits before the point.
fn scaled(number: f64) -> (String, &'static str) {
    let prefixes = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
    match prefixes.iter().find(|(unit, _)| number / unit < 999.5) {
        Some((unit, prefix)) => (digits(number / unit), prefix),
        None => (digits(number / 1e12), "T"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_size_is_exact_and_an_amount_is_short() {
        let sizes = [1, 1000, 1024, 4096, 5000, 65536, 1 << 20, 3 << 30, 1 << 40].map(size);
        assert_eq!(sizes, ["1 B", "1000 B", "1 KiB", "4 KiB", "5000 B", "64 KiB", "1 MiB", "3 GiB", "1 TiB"]);
        let amounts = [0, 1023, 1024, 5000, 1_234_567, 16 << 30].map(amount);
        assert_eq!(amounts, ["0 B", "1023 B", "1.00 KiB", "4.88 KiB", "1.18 MiB", "16.0 GiB"]);
    }

    #[test]
    fn a_time_is_what_date_says() {
        // By `date -u -d @SECONDS +%FT%TZ`.
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00.007Z"),
            (951_782_399, "2000-02-28T23:59:59.007Z"),
            (951_782_400, "2000-02-29T00:00:00.007Z"),
            (1_709_164_800, "2024-02-29T00:00:00.007Z"),
            (1_735_689_599, "2024-12-31T23:59:59.007Z"),
            (1_735_689_600, "2025-01-01T00:00:00.007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.007Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(7_999);
            assert_eq!(utc(time), written);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        let rates = [0.0, 13.1e6, 94.24e9, 0.9996e9, 400e9, 1.6e12].map(bit_rate);
        assert_eq!(rates, ["0 b/s", "13.1 Mb/s", "94.2 Gb/s", "1.00 Gb/s", "400 Gb/s", "1.60 Tb/s"]);
        let rates = [0.0, 11.777e9, 2048.0].map(byte_rate);
        assert_eq!(rates, ["0 B/s", "11.0 GiB/s", "2.00 KiB/s"]);
        let rates = [950.4, 999.6, 180_400.0, 1_234_000.0].map(operation_rate);
        assert_eq!(rates, ["950 /s", "1.00 k/s", "180 k/s", "1.23 M/s"]);
    }

    #[test]
    fn durations_carry_into_the_next_unit() {
        let durations = [0.0, 270.0, 4_812.0, 999_400.0, 999_600.0, 1.2e9, 95e9, 4000e9].map(duration);
        assert_eq!(
            durations,
            ["0 µs", "0.270 µs", "4.81 µs", "999 µs", "1.00 ms", "1.20 s", "95.0 s", "4000 s"]
        );
        assert_eq!([270.0, 12_345.0, 1_234_567.0].map(microseconds), ["0.270", "12.3", "1235"]);
    }

    #[test]
    fn rounding_leaves_three_digits() {
        let rounded = [0.012_345, 0.9999, 9.996, 9.994, 99.96, 999.6, 1234.5].map(digits);
        assert_eq!(rounded, ["0.0123", "1.00", "10.0", "9.99", "100", "1000", "1234"]);
        assert_eq!(digits(-12.34), "-12.3");
        assert_eq!(digits(f64::NAN), "0");
    }

    #[test]
    fn little_is_not_nothing() {
        assert_eq!(
            [0.0, 0.0001, 0.0005, 0.999, 1.0].map(percent),
            ["0.0 %", "<0.1 %", "0.1 %", "99.9 %", "100.0 %"]
        );
    }
}
