//! Formats and parses figures for display and input.
//!
//! Sizes are binary (`64 KiB`). Bit rates are decimal (`94.2 Gb/s`), as link speeds are. A figure
//! has three significant digits: no measurement here is more precise.

pub(crate) mod parse;
pub(crate) mod sweep;

use std::time::{SystemTime, UNIX_EPOCH};

use farreach_doctor::figures::scaled;

pub(crate) use farreach_doctor::figures::{amount, bit_rate, digits, duration, size};

/// Formats a time by RFC 3339, in UTC with milliseconds: `2026-11-17T16:08:00.123Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    // A clock before 1970 was never set; it counts as 1970.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// Returns year, month and day of a number of days since 1970, in the Gregorian calendar. Years
/// begin in March here, so that the leap day is the last.
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

/// Formats a byte rate: `11.0 GiB/s`.
pub(crate) fn byte_rate(bytes_per_second: f64) -> String {
    // A rate below one byte per second counts as zero.
    format!("{}/s", amount(bytes_per_second.round() as u64))
}

/// Formats an operation rate: `1.23 M/s`, and `950 /s` below a thousand.
pub(crate) fn operation_rate(operations_per_second: f64) -> String {
    let (number, prefix) = scaled(operations_per_second);
    format!("{number} {prefix}/s")
}

/// Formats a number of µs without its unit, for a column whose heading has it.
pub(crate) fn microseconds(ns: f64) -> String {
    digits(ns / 1e3)
}

/// Formats a share: `99.9 %`, and `<0.1 %` for a small one above zero.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent > 0.0 && percent < 0.05 { "<0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_what_date_says() {
        // The expected values come from `date -u -d @SECONDS +%FT%TZ`.
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
