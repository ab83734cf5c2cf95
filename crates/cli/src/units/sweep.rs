//! Parses several values in one option: `8,4k,1M`, `8..1M`, `8..1M*4`.

use std::fmt;
use std::str::FromStr;

use super::parse::size_of;
use super::size;

/// The sizes to try, without duplicates, in the order typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes(Vec<u64>);

/// Counts, such as operations in flight, without duplicates, in the order typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts(Vec<u32>);

/// More values than this are a typing mistake: each one is a measurement of seconds.
const VALUES_MAX: usize = 256;

impl Sizes {
    /// Returns the sizes in bytes.
    pub(crate) fn bytes(&self) -> &[u64] {
        &self.0
    }
}

impl Counts {
    /// Returns the counts.
    pub(crate) fn numbers(&self) -> &[u32] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sweep(text, size_of).map(Self)
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<u32>() {
            Ok(number) if number > 0 => Ok(u64::from(number)),
            _ => Err(format!("{text:?} is not a whole number above 0")),
        };
        // No value exceeds the largest one typed, which fits 32 bits.
        let numbers = sweep(text, number)?.into_iter().filter_map(|number| u32::try_from(number).ok());
        Ok(Self(numbers.collect()))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|bytes| size(*bytes)).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
    }
}

fn sweep(text: &str, value_of: impl Fn(&str) -> Result<u64, String>) -> Result<Vec<u64>, String> {
    let mut values = Vec::new();
    for item in text.split(',') {
        match item.split_once("..") {
            Some((first, rest)) => range(first, rest, &value_of, &mut values)?,
            None => values.push(value_of(item)?),
        }
        if values.len() > VALUES_MAX {
            return Err(format!("the list has more than {VALUES_MAX} values: use fewer"));
        }
    }
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    Ok(distinct)
}

/// Adds a range: `FIRST..LAST` doubles, `FIRST..LAST*4` quadruples. The last value is always
/// included.
fn range(
    first: &str,
    rest: &str,
    value_of: impl Fn(&str) -> Result<u64, String>,
    values: &mut Vec<u64>,
) -> Result<(), String> {
    let (last, factor) = rest.split_once('*').unwrap_or((rest, "2"));
    let factor = match factor.trim().parse::<u64>() {
        Ok(factor) if factor >= 2 => factor,
        _ => {
            return Err(format!(
                "{factor:?} is not a factor: use a whole number of at least 2, as in 8..1M*4"
            ));
        }
    };
    let (mut value, end) = (value_of(first)?, value_of(last)?);
    if value > end {
        return Err(format!("{first} is greater than {last}: put the smaller value first"));
    }
    while value < end {
        values.push(value);
        value = value.saturating_mul(factor);
    }
    values.push(end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        text.parse::<Sizes>().unwrap_or_else(|error| panic!("{text}: {error}")).bytes().to_vec()
    }

    fn counts(text: &str) -> Vec<u32> {
        text.parse::<Counts>().unwrap_or_else(|error| panic!("{text}: {error}")).numbers().to_vec()
    }

    #[test]
    fn a_range_doubles_and_ends_with_its_end() {
        assert_eq!(sizes("8..128"), [8, 16, 32, 64, 128]);
        assert_eq!(sizes("8..1M").len(), 18);
        assert_eq!(sizes("8..1M").last(), Some(&(1 << 20)));
        assert_eq!(sizes("8..100"), [8, 16, 32, 64, 100]);
        assert_eq!(sizes("8..1k*4"), [8, 32, 128, 512, 1024]);
        assert_eq!(sizes("4k..4k"), [4096]);
        assert_eq!(counts("1..64"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(counts("1..64*8"), [1, 8, 64]);
    }

    #[test]
    fn a_list_keeps_its_order_and_each_value_once() {
        assert_eq!(sizes("8,4k,1M"), [8, 4096, 1 << 20]);
        assert_eq!(sizes("1M, 8, 1MiB"), [1 << 20, 8]);
        assert_eq!(sizes("8,64..256"), [8, 64, 128, 256]);
        assert_eq!(counts("1,16,64"), [1, 16, 64]);
    }

    #[test]
    fn the_largest_there_is_ends_the_range() {
        assert_eq!(sizes("1..16777215T").len(), 65);
        assert_eq!(counts("1..4294967295").len(), 33);
    }

    #[test]
    fn mistakes_say_what_would_do() {
        let refused = |text: &str| text.parse::<Sizes>().unwrap_err();
        assert_eq!(refused("1M..8"), "1M is greater than 8: put the smaller value first");
        assert_eq!(
            refused("8..1M*1"),
            "\"1\" is not a factor: use a whole number of at least 2, as in 8..1M*4"
        );
        assert!(refused("8,").contains("is not a whole number"), "{}", refused("8,"));
        assert!(refused("8..").contains("is not a whole number"), "{}", refused("8.."));
        let many: Vec<_> = (1..=257).map(|number| number.to_string()).collect();
        assert_eq!(refused(&many.join(",")), "the list has more than 256 values: use fewer");
        assert_eq!("1k".parse::<Counts>().unwrap_err(), "\"1k\" is not a whole number above 0");
        assert_eq!("0".parse::<Counts>().unwrap_err(), "\"0\" is not a whole number above 0");
    }

    #[test]
    fn they_print_as_a_list() {
        assert_eq!("8..64*4".parse::<Sizes>().unwrap().to_string(), "8 B, 32 B, 64 B");
        assert_eq!("1..4".parse::<Counts>().unwrap().to_string(), "1, 2, 4");
    }
}
