//! `--against FILE`: compares each row with the same row of an earlier run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::row::{Key, Row};
use crate::terminal::folded;

/// An earlier run.
#[derive(Debug)]
pub(crate) struct Against {
    file: PathBuf,
    rows: Vec<Row>,
}

/// The comparison with an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Comparisons {
    /// The file of the earlier run.
    pub(crate) file: PathBuf,
    pub(crate) rows: Vec<Comparison>,
    /// Rows that the earlier run does not have.
    pub(crate) only_here: Vec<Key>,
    /// Rows that this run does not have.
    pub(crate) only_there: Vec<Key>,
}

/// A row compared with the same row of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Comparison {
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The rails of the earlier row, if they differ.
    pub(crate) rails_there: Option<Vec<String>>,
    /// Above 1 means faster than the earlier run.
    pub(crate) operations_per_second_ratio: f64,
    /// Below 1 means faster than the earlier run; null if one of the rows has no latency.
    pub(crate) latency_p50_ratio: Option<f64>,
    /// Whether the repetitions of both runs overlap, so that the difference may be chance.
    pub(crate) is_within_spread: bool,
}

impl Against {
    /// Compares with the rows of this file.
    pub(crate) fn new(file: impl Into<PathBuf>, rows: Vec<Row>) -> Self {
        Self { file: file.into(), rows }
    }

    /// Matches the rows of both runs.
    pub(crate) fn compare(&self, rows: &[Row]) -> Comparisons {
        let pairs: Vec<(&Row, Option<&Row>)> =
            rows.iter().map(|row| (row, self.row_for(row, rows))).collect();
        let is_met = |there: &&Row| pairs.iter().any(|(_, met)| met.is_some_and(|met| met.key == there.key));
        Comparisons {
            file: self.file.clone(),
            rows: pairs.iter().filter_map(|(here, there)| Some(comparison(here, (*there)?))).collect(),
            only_here: pairs.iter().filter(|pair| pair.1.is_none()).map(|pair| pair.0.key.clone()).collect(),
            only_there: self.rows.iter().filter(|it| !is_met(it)).map(|it| it.key.clone()).collect(),
        }
    }

    /// Returns the same row, or the only one that differs in its rails alone, so that for example
    /// tcp can be compared with Soft-RoCE.
    fn row_for(&self, row: &Row, rows: &[Row]) -> Option<&Row> {
        if let Some(same) = self.rows.iter().find(|there| there.key == row.key) {
            return Some(same);
        }
        let is_alike = |other: &&Row| Key { rails: row.key.rails.clone(), ..other.key.clone() } == row.key;
        let mut alike = self.rows.iter().filter(is_alike);
        let only = alike.next().filter(|_| rows.iter().filter(is_alike).count() == 1)?;
        alike.next().is_none().then_some(only)
    }
}

fn comparison(here: &Row, there: &Row) -> Comparison {
    let (new, old) = (&here.median, &there.median);
    let latencies = new.latency_p50_ns.zip(old.latency_p50_ns).filter(|(_, old)| *old > 0);
    let is_within_spread = here.spread.min.operations_per_second <= there.spread.max.operations_per_second
        && there.spread.min.operations_per_second <= here.spread.max.operations_per_second;
    Comparison {
        key: here.key.clone(),
        rails_there: (here.key.rails != there.key.rails).then(|| there.key.rails.clone()),
        operations_per_second_ratio: new.operations_per_second / old.operations_per_second,
        latency_p50_ratio: latencies.map(|(new, old)| new as f64 / old as f64),
        is_within_spread,
    }
}

impl Comparison {
    /// Formats the ratio: `0.93`, and `≈0.99` if the difference may be chance.
    pub(crate) fn ratio(&self) -> String {
        let mark = if self.is_within_spread { "≈" } else { "" };
        format!("{mark}{:.2}", self.operations_per_second_ratio)
    }
}

impl Comparisons {
    /// Returns the comparison of a row.
    pub(crate) fn of(&self, row: &Row) -> Option<&Comparison> {
        self.rows.iter().find(|comparison| comparison.key == row.key)
    }

    /// Returns the notes below the table: the file compared with, and the rows without a
    /// counterpart.
    pub(crate) fn notes(&self, width: Option<u16>) -> String {
        let file = self.file.display();
        let mut notes = vec![format!(
            "×old: operations per second relative to {file}; ≈ if the repetitions of both runs overlap."
        )];
        notes.extend(self.remarks());
        notes.iter().map(|note| folded("", note, width)).collect()
    }

    /// Formats the comparison without a column: a line for each row, then the remarks.
    pub(crate) fn lines(&self) -> String {
        let file = self.file.display();
        let line = |row: &Comparison| {
            format!("{}: {} times the operations per second of {file}", row.key, row.ratio())
        };
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        if self.rows.iter().any(|row| row.is_within_spread) {
            lines.push("≈: the repetitions of both runs overlap.".to_owned());
        }
        lines.extend(self.remarks());
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns remarks on rows without a counterpart, or with other rails.
    fn remarks(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(there) = self.rows.iter().find_map(|row| row.rails_there.as_ref()) {
            notes.push(format!("The rails of the earlier run were {}.", there.join("+")));
        }
        for (keys, is) in
            [(&self.only_here, "Not in the earlier run"), (&self.only_there, "Only in the earlier run")]
        {
            if !keys.is_empty() {
                let keys: Vec<_> = keys.iter().map(Key::to_string).collect();
                notes.push(format!("{is}: {}.", keys.join("; ")));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn against(rows: Vec<Row>) -> Against {
        Against::new("base.json", rows)
    }

    #[test]
    fn the_same_row_is_found_and_its_ratio_told() {
        let here = [sample::row("write", 4096, 16, &[110.0, 120.0]), sample::row("read", 4096, 16, &[90.0])];
        let there =
            vec![sample::row("read", 4096, 16, &[100.0]), sample::row("write", 4096, 16, &[100.0, 130.0])];
        let compared = against(there).compare(&here);
        let ratios: Vec<_> =
            compared.rows.iter().map(|it| (it.operations_per_second_ratio, it.is_within_spread)).collect();
        assert_eq!(ratios, [(1.0, true), (0.9, false)]);
        assert_eq!((compared.only_here.len(), compared.only_there.len()), (0, 0));
        assert_eq!(compared.of(&here[1]).unwrap().operations_per_second_ratio, 0.9);
    }

    #[test]
    fn rows_that_stand_alone_are_told() {
        let here = [sample::row("write", 8, 1, &[1.0]), sample::row("write", 16, 1, &[1.0])];
        let compared = against(vec![sample::row("write", 8, 1, &[2.0]), sample::row("write", 8, 64, &[1.0])])
            .compare(&here);
        assert_eq!(
            compared.notes(None),
            "×old: operations per second relative to base.json; ≈ if the repetitions of both runs overlap.\n\
             Not in the earlier run: write 16 B, depth 1, mlx5_0.\n\
             Only in the earlier run: write 8 B, depth 64, mlx5_0.\n"
        );
        assert_eq!(
            compared.lines(),
            "write 8 B, depth 1, mlx5_0: 0.50 times the operations per second of base.json\n\
             Not in the earlier run: write 16 B, depth 1, mlx5_0.\n\
             Only in the earlier run: write 8 B, depth 64, mlx5_0.\n"
        );
    }

    #[test]
    fn other_rails_are_compared_where_there_is_no_doubt_which() {
        let on = |rail: &str| {
            let mut row = sample::row("write", 8, 1, &[1.0]);
            row.key.rails = vec![rail.to_owned()];
            row
        };
        let compared = against(vec![on("rxe0")]).compare(&[on("tcp")]);
        assert_eq!(compared.rows[0].rails_there, Some(vec!["rxe0".to_owned()]));
        assert!(compared.notes(None).contains("The rails of the earlier run were rxe0.\n"));
        for (there, here) in
            [(vec![on("rxe0"), on("net")], vec![on("tcp")]), (vec![on("rxe0")], vec![on("tcp"), on("net")])]
        {
            assert_eq!(against(there).compare(&here).rows, []);
        }
        // The same row takes precedence.
        let compared = against(vec![on("rxe0"), on("tcp")]).compare(&[on("tcp")]);
        assert_eq!((compared.rows[0].rails_there.clone(), compared.only_there.len()), (None, 1));
    }
}
