//! The report of `farreach bench`, as JSON, written and read. Sizes are in bytes, times in ns,
//! rates in bits per second.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. A field that an older report lacks is read as empty. The schema is
//! docs/schema/bench.json.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::against::Comparisons;
use super::row::Row;
use super::verdict::Verdict;
use crate::exit::Failure;
use crate::native::QueuePairArgs;
use crate::report::{Head, SCHEMA_VERSION, Told};

/// The name of the command in a report.
pub(crate) const COMMAND: &str = "bench";

/// The note that rows are missing because of an interrupt.
pub(crate) const INTERRUPTED: &str = "It was interrupted: the rest was not measured.";

/// All of one run of `farreach bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BenchReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) parameters: Parameters,
    pub(crate) rows: Vec<Row>,
    /// By `--against`.
    pub(crate) comparisons: Option<Comparisons>,
    /// By `--floor`.
    pub(crate) verdicts: Vec<Verdict>,
    /// What was asked for, and cannot be had here.
    #[serde(default)]
    pub(crate) not_measured: Vec<NotMeasured>,
    /// What has put an end to it: the rows are those before.
    #[serde(default)]
    pub(crate) error: Option<Told>,
}

/// What is missing among the rows, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotMeasured {
    /// Null where it is all of them, over so many rails.
    pub(crate) operation: Option<String>,
    #[serde(flatten)]
    pub(crate) why: Told,
}

impl NotMeasured {
    /// Creates an entry with this failure as the reason.
    pub(crate) fn new(operation: Option<&str>, error: String, failure: &Failure) -> Self {
        let why = Told { error, cause: Some(failure.sentence()), fix: failure.fix.clone() };
        Self { operation: operation.map(str::to_owned), why }
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    pub(crate) operations: Vec<String>,
    pub(crate) sizes_bytes: Vec<u64>,
    pub(crate) depths: Vec<u32>,
    pub(crate) queues: Vec<u32>,
    /// How often each row is measured.
    pub(crate) repetitions: u32,
    /// How long each repetition is.
    pub(crate) duration_ns: u64,
    /// What runs before, and does not count.
    pub(crate) warm_up_ns: u64,
    /// How the queue pairs of operations without the engine were made; null where there are none.
    #[serde(default)]
    pub(crate) queue_pair: Option<QueuePairArgs>,
}

impl BenchReport {
    /// Creates a report without rows.
    pub(crate) fn new(head: Head, parameters: Parameters) -> Self {
        Self {
            head,
            parameters,
            rows: Vec::new(),
            comparisons: None,
            verdicts: Vec::new(),
            not_measured: Vec::new(),
            error: None,
        }
    }

    /// Reads the report of an earlier run.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text)
            .with_context(|| format!("cannot use {name}: `farreach bench --json` writes what can be"))
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("it is no JSON")?;
        if value["command"] != COMMAND {
            bail!("it is no report of `farreach bench`");
        }
        match value["schema_version"].as_u64() {
            Some(version) if version > u64::from(SCHEMA_VERSION) => bail!(
                "it is of version {version}, and this farreach knows versions up to {SCHEMA_VERSION}: upgrade it, or \
                 measure again"
            ),
            _ => Ok(serde_json::from_value(value)?),
        }
    }

    /// Returns the report as JSON.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self).context("cannot write the report as JSON")? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::against::Against;
    use super::super::floor::{Floor, Judge};
    use super::super::{sample, verdict};
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn what_is_written_is_read() {
        let report = sample::report();
        let read = BenchReport::parse(&report.to_json().unwrap()).unwrap();
        assert_eq!(read, report);
    }

    #[test]
    fn a_report_that_is_older_than_some_fields_is_read() {
        let report = sample::report();
        let mut value = serde_json::to_value(&report).unwrap();
        for field in ["not_measured", "error"] {
            value.as_object_mut().unwrap().remove(field).expect(field);
        }
        assert_eq!(BenchReport::parse(&value.to_string()).unwrap(), report);
    }

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<BenchReport>("bench.json");
    }

    #[test]
    fn the_schema_describes_a_run_with_all_there_can_be() {
        let mut report = sample::report();
        report.comparisons =
            Some(Against::new("base.json", sample::report().rows).compare(&report.rows[1..]));
        report.verdicts = Judge::new("p99=5us".parse().unwrap(), Vec::new()).judge(&report.rows);
        let failure = Failure::new(Exit::Unavailable, "there is none").cause("it is missing").fix("get one");
        report.not_measured =
            vec![NotMeasured::new(Some("cas"), "cas was not measured".to_owned(), &failure)];
        report.error = Some(Told::from(&failure));
        crate::schema::assert_describes(&report);
        let read = BenchReport::parse(&report.to_json().unwrap()).unwrap();
        assert_eq!(read, report);
    }

    #[test]
    fn an_earlier_run_is_read_from_its_file() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("base.json");
        let report = sample::report();
        fs::write(&file, report.to_json().unwrap()).unwrap();
        let read = |file: &Path| BenchReport::read(file).unwrap().rows;
        let judge = |share: u32| {
            let floor: Floor = format!("{share}%of={}", file.display()).parse().unwrap();
            let baseline = floor.baseline().map(read).unwrap();
            Judge::new(floor, baseline)
        };
        assert!(verdict::is_passed(&judge(100).judge(&report.rows)));
        assert!(!verdict::is_passed(&judge(101).judge(&report.rows)));
        let compared = Against::new(&file, read(&file)).compare(&report.rows);
        assert_eq!((compared.rows.len(), compared.only_here.len()), (report.rows.len(), 0));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_told_why() {
        let chain = |text: &str| BenchReport::parse(text).unwrap_err().to_string();
        assert_eq!(chain("no"), "it is no JSON");
        assert_eq!(chain("{\"verbs\": {}}"), "it is no report of `farreach bench`");
        assert_eq!(
            chain("{\"command\": \"bench\", \"schema_version\": 2}"),
            "it is of version 2, and this farreach knows versions up to 1: upgrade it, or measure again"
        );
        assert!(chain("{\"command\": \"bench\", \"schema_version\": 1}").contains("missing field"));
        let missing = BenchReport::read(Path::new("/nowhere/base.json")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read /nowhere/base.json");
    }
}
