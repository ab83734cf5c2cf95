//! Parsers of option values. Their errors state what is accepted.

use std::time::Duration;

/// Parses a size: `8`, `4k`, `64K`, `1M`, `1MiB`, `2G`. The units are binary, as is usual in this
/// field.
pub(crate) fn size_of(text: &str) -> Result<u64, String> {
    let (number, unit) = parts(text);
    let Some(factor) = binary_factor(unit) else {
        return Err(match unit.to_ascii_uppercase().as_str() {
            // 10⁶ or 2²⁰: the wrong guess would measure something else than intended.
            decimal @ ("KB" | "MB" | "GB" | "TB") => {
                let prefix = &decimal[..1];
                format!("{unit} is ambiguous: use {number}{prefix} or {number}{prefix}iB for the binary size")
            }
            _ => format!("{unit:?} is not a unit: {SIZES}"),
        });
    };
    let number: u64 = number.parse().map_err(|_| format!("{number:?} is not a whole number: {SIZES}"))?;
    if number == 0 {
        return Err("a size is at least 1 byte".to_owned());
    }
    number.checked_mul(factor).ok_or_else(|| "the size is too large".to_owned())
}

const SIZES: &str = "use 8, 4k, 1M, 1MiB or 2G";

fn binary_factor(unit: &str) -> Option<u64> {
    match unit {
        "" | "B" => Some(1),
        "k" | "K" | "Ki" | "KiB" | "kiB" => Some(1 << 10),
        "m" | "M" | "Mi" | "MiB" => Some(1 << 20),
        "g" | "G" | "Gi" | "GiB" => Some(1 << 30),
        "t" | "T" | "Ti" | "TiB" => Some(1 << 40),
        _ => None,
    }
}

/// Parses a data rate, in bits per second: `10Gb/s`, `500Mb/s`, `1.2GiB/s`.
pub(crate) fn bit_rate_of(text: &str) -> Result<f64, String> {
    let (number, unit) = parts(text);
    let factor = match unit {
        "b/s" => 1.0,
        "kb/s" | "Kb/s" => 1e3,
        "Mb/s" => 1e6,
        "Gb/s" => 1e9,
        "Tb/s" => 1e12,
        _ => match unit.strip_suffix("iB/s").and_then(|_| binary_factor(unit.trim_end_matches("/s"))) {
            Some(bytes) => bytes as f64 * 8.0,
            None => return Err(format!("{text:?} is not a data rate: use 10Gb/s or 1.2GiB/s")),
        },
    };
    Ok(positive(number)? * factor)
}

/// Parses operations per second: `500k/s`, `1.2M/s`, `800/s`.
pub(crate) fn operation_rate_of(text: &str) -> Result<f64, String> {
    let (number, unit) = parts(text);
    let factor = match unit {
        "/s" => 1.0,
        "k/s" | "K/s" => 1e3,
        "M/s" => 1e6,
        "G/s" => 1e9,
        _ => return Err(format!("{text:?} is not an operation rate: use 500k/s or 1.2M/s")),
    };
    Ok(positive(number)? * factor)
}

/// Parses a time with its unit: `20us`, `1.5ms`, `2s`.
pub(crate) fn duration_of(text: &str) -> Result<Duration, String> {
    let (number, unit) = parts(text);
    let seconds = match unit {
        "ns" => 1e-9,
        // Both characters in use: the micro sign and the Greek letter.
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is not a time: use 20us, 1.5ms, 2s or 3min")),
    };
    Duration::try_from_secs_f64(positive(number)? * seconds).map_err(|_| "the time is too long".to_owned())
}

/// Parses a time in seconds unless it has a unit, like other tools of this field: `10`, `0.5`,
/// `10s`, `2min`.
pub(crate) fn seconds_of(text: &str) -> Result<Duration, String> {
    match parts(text) {
        (number, "") => duration_of(&format!("{number}s")),
        _ => duration_of(text),
    }
}

/// Parses a share: `90%`.
pub(crate) fn share_of(text: &str) -> Result<f64, String> {
    match parts(text) {
        (number, "%") => Ok(positive(number)? / 100.0),
        _ => Err(format!("{text:?} is not a percentage: use 90%")),
    }
}

fn positive(number: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{number:?} is not a number above 0")),
    }
}

/// Splits a text into number and unit, with or without a space between them.
fn parts(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_this_field_writes_them() {
        for (text, bytes) in [
            ("8", 8),
            ("8B", 8),
            ("4k", 4096),
            ("64K", 65536),
            ("1M", 1 << 20),
            ("1MiB", 1 << 20),
            ("1 MiB", 1 << 20),
            ("2G", 2 << 30),
        ] {
            assert_eq!(size_of(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_says_what_would_do() {
        for (text, words) in [
            ("", "\"\" is not a whole number: use 8, 4k, 1M, 1MiB or 2G"),
            ("1.5M", "\"1.5\" is not a whole number: use 8, 4k, 1M, 1MiB or 2G"),
            ("-1", "\"-1\" is not a unit: use 8, 4k, 1M, 1MiB or 2G"),
            ("4MB", "MB is ambiguous: use 4M or 4MiB for the binary size"),
            ("4kb", "kb is ambiguous: use 4K or 4KiB for the binary size"),
            ("4x", "\"x\" is not a unit: use 8, 4k, 1M, 1MiB or 2G"),
            ("0", "a size is at least 1 byte"),
            ("99999999T", "the size is too large"),
        ] {
            assert_eq!(size_of(text), Err(words.to_owned()));
        }
    }

    #[test]
    fn rates_of_bits_bytes_and_operations() {
        assert_eq!(bit_rate_of("10Gb/s"), Ok(10e9));
        assert_eq!(bit_rate_of("2.5 Gb/s"), Ok(2.5e9));
        assert_eq!(bit_rate_of("500Mb/s"), Ok(500e6));
        assert_eq!(bit_rate_of("1GiB/s"), Ok(8.0 * f64::from(1 << 30)));
        assert_eq!(operation_rate_of("500k/s"), Ok(500e3));
        assert_eq!(operation_rate_of("800/s"), Ok(800.0));
        let error = bit_rate_of("10GB/s").unwrap_err();
        assert_eq!(error, "\"10GB/s\" is not a data rate: use 10Gb/s or 1.2GiB/s");
        assert_eq!(bit_rate_of("0Gb/s").unwrap_err(), "\"0\" is not a number above 0");
        assert!(operation_rate_of("500k").unwrap_err().contains("use 500k/s"));
    }

    #[test]
    fn times_have_a_unit_unless_seconds_are_meant() {
        assert_eq!(duration_of("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(duration_of("20µs"), Ok(Duration::from_micros(20)));
        assert_eq!(duration_of("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(duration_of("20").unwrap_err(), "\"20\" is not a time: use 20us, 1.5ms, 2s or 3min");
        assert_eq!(duration_of("99999999999999999999h").unwrap_err(), "the time is too long");
        assert_eq!(seconds_of("10"), Ok(Duration::from_secs(10)));
        assert_eq!(seconds_of("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds_of("2min"), Ok(Duration::from_secs(120)));
        assert!(seconds_of("soon").is_err());
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share_of("90%"), Ok(0.9));
        assert_eq!(share_of("90").unwrap_err(), "\"90\" is not a percentage: use 90%");
    }
}
