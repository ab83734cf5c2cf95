//! The reviewed list of differences between header sets: `layout-differences.txt` of a sys crate.
//!
//! A line is `HEADERS KIND NAME: REASON`, such as `rdma-core-44 absent ibv_qp_ex.wr_flush: appended
//! later`. A name that ends in `*` stands for all names with that prefix. `#` begins a comment
//! line.
//!
//! The bindings must not differ from the headers that they are generated from. Headers without a
//! review, because Debian has a new release, are compared with the list of the release before; in
//! addition, a structure may have grown.
//!
//! `anchor TYPE.FIELD: REASON` says that a structure grows at its front and is accessed from that
//! field. The distances from there must be equal, and the list cannot allow a difference.

use anyhow::{Context, Result, bail, ensure};

use super::compare::{Comparison, Difference, Kind};
use super::{Aspect, Item, Numbers};

#[derive(Debug)]
pub(super) struct Known {
    /// The headers that the bindings are generated from.
    origin: String,
    /// `TYPE.FIELD`
    anchors: Vec<String>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    headers: String,
    kind: String,
    name: String,
    line: usize,
}

/// The result of a comparison after the list was applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) excused: usize,
    /// Structures that are longer in headers without a review.
    pub(super) grown: Vec<String>,
    pub(super) faults: Vec<String>,
}

impl Known {
    pub(super) fn parse(list: &str, origin: &str) -> Result<Self> {
        let origin = identifier(origin);
        let (mut anchors, mut entries) = (Vec::new(), Vec::new());
        for (index, text) in list.lines().enumerate() {
            let line = index + 1;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            if let Some((field, _reason)) =
                text.strip_prefix("anchor ").and_then(|rest| rest.split_once(": "))
            {
                anchors.push(field.to_owned());
            } else {
                entries.push(
                    Entry::parse(text, line, &origin)
                        .with_context(|| format!("layout-differences.txt:{line}"))?,
                );
            }
        }
        Ok(Self { origin, anchors, entries })
    }

    /// Replaces the offsets in each anchored type by the distances from its anchor. Returns the
    /// offsets of the anchors.
    pub(super) fn measure_from_anchors(&self, numbers: &mut Numbers) -> Result<Vec<u64>> {
        let mut starts = Vec::new();
        for anchor in &self.anchors {
            let (ty, _) =
                anchor.split_once('.').with_context(|| format!("anchor {anchor} is not `TYPE.FIELD`"))?;
            let item = Item { name: anchor.clone(), aspect: Aspect::Offset };
            let start = *numbers.get(&item).with_context(|| format!("anchor {anchor} is not bound"))?;
            starts.push(start);
            let inside = format!("{ty}.");
            for (item, number) in numbers.iter_mut() {
                if item.aspect == Aspect::Offset && item.name.starts_with(&inside) {
                    *number = number.wrapping_sub(start);
                }
            }
        }
        Ok(starts)
    }

    /// Returns the anchors that have the same offset in all headers and are not needed; `starts`
    /// has a row for each set.
    pub(super) fn idle_anchors(&self, starts: &[Vec<u64>]) -> Vec<String> {
        let idle = |index: &usize| starts.iter().all(|row| row[*index] == starts[0][*index]);
        let fault = |index: usize| {
            format!("layout-differences.txt: anchor {} is not needed: remove it", self.anchors[index])
        };
        (0..self.anchors.len()).filter(idle).map(fault).collect()
    }

    /// Applies the list. `version` is that of the headers: `rdma-core 44`.
    pub(super) fn judge(&self, version: &str, comparison: &Comparison) -> Judged {
        let headers = identifier(version);
        let reviewed = self.last_review(&headers);
        let is_reviewed = reviewed == Some(headers.as_str());
        let entries: Vec<&Entry> =
            self.entries.iter().filter(|entry| Some(entry.headers.as_str()) == reviewed).collect();
        let (excused, unknown): (Vec<&Difference>, Vec<&Difference>) = comparison
            .differences
            .iter()
            .partition(|difference| entries.iter().any(|entry| entry.covers(difference)));
        let (grown, unknown): (Vec<&Difference>, Vec<&Difference>) =
            unknown.into_iter().partition(|difference| !is_reviewed && difference.is_growth());
        let mut faults: Vec<String> =
            unknown.iter().map(|difference| self.fault(&headers, difference)).collect();
        for entry in entries {
            if !comparison.differences.iter().any(|difference| entry.covers(difference)) {
                faults.push(format!(
                    "layout-differences.txt:{}: `{} {}` is no longer a difference: remove the line",
                    entry.line, entry.kind, entry.name
                ));
            }
        }
        let grown = grown.iter().map(ToString::to_string).collect();
        Judged { excused: excused.len(), grown, faults }
    }

    /// Returns the newest reviewed release that is not newer than these headers.
    fn last_review(&self, headers: &str) -> Option<&str> {
        let releases = self.entries.iter().map(|entry| entry.headers.as_str()).chain([self.origin.as_str()]);
        releases
            .filter(|reviewed| release(reviewed) <= release(headers))
            .max_by_key(|reviewed| release(reviewed))
    }

    fn fault(&self, headers: &str, difference: &Difference) -> String {
        let advice = match difference.kind {
            _ if headers == self.origin => {
                "the bindings are generated from these headers: correct the file written by hand"
            }
            Kind::Differs(Aspect::Offset) => "one binary cannot support both, and the list cannot allow it",
            _ => "not in layout-differences.txt: review it, and add a line that says why it is harmless",
        };
        format!("{difference}: {advice}")
    }
}

impl Entry {
    fn parse(text: &str, line: usize, origin: &str) -> Result<Self> {
        let (item, reason) = text.split_once(": ").context("the line has no `: REASON`")?;
        ensure!(!reason.trim().is_empty(), "the reason is empty");
        let words: Vec<&str> = item.split_whitespace().collect();
        let [headers, kind, name] = words[..] else { bail!("the line is not `HEADERS KIND NAME: REASON`") };
        ensure!(headers != origin, "the bindings are generated from {headers}: no difference is allowed");
        let library = |headers: &str| headers.rsplit_once('-').map(|(library, _)| library.to_owned());
        ensure!(
            library(headers) == library(origin),
            "{headers} is not a release of the same library as {origin}"
        );
        ensure!(kind != Aspect::Offset.word(), "the list cannot allow a moved field");
        ensure!(["absent", "size", "width", "value"].contains(&kind), "unknown kind of difference");
        Ok(Self { headers: headers.to_owned(), kind: kind.to_owned(), name: name.to_owned(), line })
    }

    fn covers(&self, difference: &Difference) -> bool {
        let is_named = match self.name.strip_suffix('*') {
            Some(beginning) => difference.name.starts_with(beginning),
            None => difference.name == self.name,
        };
        self.kind == difference.kind.word() && is_named
    }
}

/// Returns a release as one word: `rdma-core-44`.
fn identifier(version: &str) -> String {
    version.replace(' ', "-")
}

/// Returns the numbers of `libfabric-2.1`, for comparisons: 2, 1.
fn release(headers: &str) -> Vec<u32> {
    let version = headers.rsplit('-').next().unwrap_or_default();
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::measure::Measured;
    use super::super::{compare::compare, parse_numbers};
    use super::*;

    const ORIGIN: &str = "rdma-core 65";

    fn judged(list: &str, headers: &str) -> Judged {
        judged_as("rdma-core 44", list, headers)
    }

    fn judged_as(version: &str, list: &str, headers: &str) -> Judged {
        let bindings = parse_numbers("wr size 16\nwr.op offset 8\nRED value 1\nREST value 2\n").unwrap();
        let numbers = parse_numbers(headers).unwrap();
        let absent = bindings.keys().filter(|item| !numbers.contains_key(item)).cloned().collect();
        let comparison = compare(&bindings, &Measured { numbers, absent });
        Known::parse(list, ORIGIN).unwrap().judge(version, &comparison)
    }

    #[test]
    fn a_listed_difference_is_excused() {
        let list = "# why\nrdma-core-44 size wr: grew at its end\nrdma-core-44 absent RE*: newer\n";
        assert_eq!(
            judged(list, "wr size 8\nwr.op offset 8\n"),
            Judged { excused: 3, grown: vec![], faults: vec![] }
        );
    }

    #[test]
    fn an_unlisted_difference_and_a_stale_line_are_faults() {
        let faults =
            judged("rdma-core-44 size wr: grew\n", "wr size 16\nwr.op offset 8\nRED value 1\n").faults;
        assert!(faults[0].starts_with("absent REST: not in layout-differences.txt"), "{faults:?}");
        assert!(
            faults[1].contains("layout-differences.txt:1: `size wr` is no longer a difference"),
            "{faults:?}"
        );
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn only_growth_is_taken_from_headers_that_nobody_reviewed() {
        let list = "rdma-core-44 absent REST: newer\n";
        let judged = judged_as("rdma-core 66", list, "wr size 24\nwr.op offset 8\nRED value 1\n");
        assert_eq!(judged.grown, ["size wr (bindings 16, headers 24)"]);
        assert_eq!(judged.faults.len(), 1, "{judged:?}");
        let reviewed = judged_as("rdma-core 45", list, "wr size 24\nwr.op offset 8\nRED value 1\n");
        assert_eq!(
            (reviewed.excused, reviewed.grown.len(), reviewed.faults.len()),
            (1, 1, 0),
            "{reviewed:?}"
        );
        let origin = judged_as(ORIGIN, list, "wr size 24\nwr.op offset 8\nRED value 1\nREST value 2\n");
        assert!(origin.grown.is_empty() && origin.faults.len() == 1, "{origin:?}");
    }

    #[test]
    fn a_moved_field_is_never_excused() {
        let faults = judged("", "wr size 16\nwr.op offset 12\nRED value 1\nREST value 2\n").faults;
        assert_eq!(
            faults,
            ["offset wr.op (bindings 8, headers 12): one binary cannot support both, and the list \
                 cannot allow it"]
        );
        let error = Known::parse("rdma-core-44 offset wr.op: it is all right\n", ORIGIN).unwrap_err();
        assert!(format!("{error:#}").contains("the list cannot allow a moved field"));
    }

    #[test]
    fn an_anchored_type_is_measured_from_its_anchor() {
        let distances = |numbers: &str| {
            let mut numbers = parse_numbers(numbers).unwrap();
            let known = Known::parse("anchor ctx.end: grows at its front\n", ORIGIN).unwrap();
            known.measure_from_anchors(&mut numbers).unwrap();
            numbers
        };
        let older = distances("ctx.op offset 0\nctx.end offset 8\n");
        assert_eq!(older, distances("ctx.op offset 48\nctx.end offset 56\n"));
        assert_ne!(older, distances("ctx.op offset 40\nctx.end offset 56\n"));
        let known = Known::parse("anchor ctx.end: grows at its front\n", ORIGIN).unwrap();
        assert!(known.idle_anchors(&[vec![8], vec![56]]).is_empty());
        assert_eq!(known.idle_anchors(&[vec![8], vec![8]]).len(), 1);
    }

    #[test]
    fn a_line_without_reason_or_for_the_origin_is_refused() {
        assert!(Known::parse("rdma-core-44 absent wr\n", ORIGIN).is_err());
        assert!(Known::parse("rdma-core-65 absent wr: because\n", ORIGIN).is_err());
    }
}
