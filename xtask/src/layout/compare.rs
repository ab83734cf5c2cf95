//! Compares the numbers of the bindings with those of a header set.

use std::collections::BTreeSet;
use std::fmt;

use super::measure::Measured;
use super::{Aspect, Item, Numbers};

/// The number of equal items, and every difference.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) types: usize,
    /// Fields with equal offset and width.
    pub(super) fields: usize,
    pub(super) constants: usize,
    pub(super) differences: Vec<Difference>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// The numbers of the bindings and of the headers; `None` if the headers do not have the item.
    numbers: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Absent,
    Differs(Aspect),
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Differs(aspect) => aspect.word(),
        }
    }
}

impl Difference {
    /// Returns whether the item is larger in the headers.
    pub(super) fn is_growth(&self) -> bool {
        let can_grow = matches!(self.kind, Kind::Differs(Aspect::Size | Aspect::Width));
        can_grow && self.numbers.is_some_and(|(bindings, headers)| headers > bindings)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.name)?;
        match self.numbers {
            // A distance from an anchor may be negative.
            Some((bindings, headers)) if self.kind == Kind::Differs(Aspect::Offset) => {
                write!(f, " (bindings {}, headers {})", bindings.cast_signed(), headers.cast_signed())
            }
            Some((bindings, headers)) => write!(f, " (bindings {bindings}, headers {headers})"),
            None => Ok(()),
        }
    }
}

pub(super) fn compare(bindings: &Numbers, headers: &Measured) -> Comparison {
    let mut comparison = Comparison::default();
    for (item, ours) in bindings {
        match headers.numbers.get(item) {
            // These headers were not asked for it.
            None if !headers.absent.contains(item) => {}
            None if is_part_of_absent(item, &headers.absent) => {}
            None => comparison.add(Kind::Absent, item, None),
            Some(theirs) if theirs != ours => {
                comparison.add(Kind::Differs(item.aspect), item, Some((*ours, *theirs)));
            }
            Some(_) => match item.aspect {
                Aspect::Size => comparison.types += 1,
                Aspect::Offset => comparison.fields += 1,
                Aspect::Value => comparison.constants += 1,
                Aspect::Width => {}
            },
        }
    }
    // A field was counted by its offset. If its width differs, it is not equal.
    let equal_offset = |difference: &&Difference| {
        difference.kind == Kind::Differs(Aspect::Width)
            && !comparison
                .differences
                .iter()
                .any(|other| other.kind == Kind::Differs(Aspect::Offset) && other.name == difference.name)
    };
    comparison.fields -= comparison.differences.iter().filter(equal_offset).count();
    comparison
}

impl Comparison {
    fn add(&mut self, kind: Kind, item: &Item, numbers: Option<(u64, u64)>) {
        self.differences.push(Difference { kind, name: item.name.clone(), numbers });
    }
}

/// Returns whether another absent item explains this one: the type, the member around it, or the
/// offset.
fn is_part_of_absent(item: &Item, absent: &BTreeSet<Item>) -> bool {
    let is_absent = |name: &str, aspect| absent.contains(&Item { name: name.to_owned(), aspect });
    if item.aspect == Aspect::Width && is_absent(&item.name, Aspect::Offset) {
        return true;
    }
    let outer = item.name.match_indices('.').map(|(end, _)| &item.name[..end]);
    outer.into_iter().any(|outer| is_absent(outer, Aspect::Size) || is_absent(outer, Aspect::Offset))
}

#[cfg(test)]
mod tests {
    use super::super::parse_numbers;
    use super::*;

    const OURS: &str =
        "wr size 16\nwr.id offset 0\nwr.id width 8\nwr.op offset 8\nwr.op width 4\nRC value 2\n";

    fn differences(headers: &str) -> Vec<String> {
        let bindings = parse_numbers(OURS).unwrap();
        let numbers = parse_numbers(headers).unwrap();
        let absent = bindings.keys().filter(|item| !numbers.contains_key(item)).cloned().collect();
        let comparison = compare(&bindings, &Measured { numbers, absent });
        comparison.differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_numbers_are_counted() {
        let headers = Measured { numbers: parse_numbers(OURS).unwrap(), absent: BTreeSet::new() };
        let comparison = compare(&headers.numbers, &headers);
        assert_eq!((comparison.types, comparison.fields, comparison.constants), (1, 2, 1));
        assert!(comparison.differences.is_empty());
    }

    #[test]
    fn a_moved_field_and_a_changed_value_are_told() {
        assert_eq!(
            differences(
                &OURS.replace("wr.op offset 8", "wr.op offset 12").replace("RC value 2", "RC value 3")
            ),
            ["value RC (bindings 2, headers 3)", "offset wr.op (bindings 8, headers 12)"]
        );
    }

    #[test]
    fn what_is_absent_is_told_once() {
        assert_eq!(differences("RC value 2\n"), ["absent wr"]);
        assert_eq!(differences("wr size 16\nwr.id offset 0\nwr.id width 8\nRC value 2\n"), ["absent wr.op"]);
    }
}
