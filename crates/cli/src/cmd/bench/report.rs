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
use crate::exit::{Exit, Failure, Told};
use crate::native::QueuePairArgs;
use crate::report::{Head, SCHEMA_VERSION};

/// The name of the command in a report.
pub(crate) const COMMAND: &str = "bench";

/// The note that rows are missing because of an interrupt.
pub(crate) const INTERRUPTED: &str = "Interrupted: the remaining rows were not measured.";

/// The report of one run of `farreach bench`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BenchReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) parameters: Parameters,
    pub(crate) rows: Vec<Row>,
    /// The result of `--against`.
    pub(crate) comparisons: Option<Comparisons>,
    /// The results of `--floor`.
    pub(crate) verdicts: Vec<Verdict>,
    /// What was requested and could not be measured.
    #[serde(default)]
    pub(crate) not_measured: Vec<NotMeasured>,
    /// The error that ended the run early. The rows are those measured before it.
    #[serde(default)]
    pub(crate) error: Option<Told>,
}

/// Missing rows, and why they are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotMeasured {
    /// Null if all operations over a number of rails are missing.
    pub(crate) operation: Option<String>,
    /// The sizes that are missing, because no rail has such long messages; empty if all are missing.
    #[serde(default)]
    pub(crate) sizes_bytes: Vec<u64>,
    #[serde(flatten)]
    pub(crate) why: Box<Told>,
}

impl NotMeasured {
    /// Creates an entry with this failure as the reason.
    pub(crate) fn new(operation: Option<&str>, error: String, failure: &Failure) -> Self {
        let why = Box::new(Told { error, cause: Some(failure.sentence()), ..Told::from(failure) });
        Self { operation: operation.map(str::to_owned), sizes_bytes: Vec::new(), why }
    }

    /// Returns whether the rows of this operation and size are missing.
    pub(crate) fn has(&self, operation: &str, size_bytes: u64) -> bool {
        self.operation.as_deref() == Some(operation)
            && (self.is_whole() || self.sizes_bytes.contains(&size_bytes))
    }

    /// Returns whether all sizes are missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.sizes_bytes.is_empty()
    }
}

/// The parameters of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    pub(crate) operations: Vec<String>,
    pub(crate) sizes_bytes: Vec<u64>,
    pub(crate) depths: Vec<u32>,
    pub(crate) queues: Vec<u32>,
    /// The repetitions of each row.
    pub(crate) repetitions: u32,
    /// The duration of each repetition.
    pub(crate) duration_ns: u64,
    /// The unmeasured time before each row.
    pub(crate) warm_up_ns: u64,
    /// The options of queue pairs for operations without the engine; null if there are none.
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
        let failure = |error: String, cause: String| {
            Failure::new(Exit::Failed, error)
                .cause(cause)
                .fix("name a report of an earlier run; to write one:\nfarreach bench PEER --json > FILE")
        };
        let name = file.display();
        let text = fs::read_to_string(file)
            .map_err(|error| failure(format!("cannot read {name}"), error.to_string()))?;
        let report = Self::parse(&text)
            .map_err(|error| failure(format!("cannot use {name} as an earlier run"), format!("{error:#}")))?;
        Ok(report)
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("it is not JSON")?;
        if value["command"] != COMMAND {
            bail!("it is not a report of `farreach bench`");
        }
        match value["schema_version"].as_u64() {
            Some(version) if version > u64::from(SCHEMA_VERSION) => bail!(
                "its schema version is {version}, and this farreach supports versions up to {SCHEMA_VERSION}: upgrade \
                 farreach, or measure again"
            ),
            _ => Ok(serde_json::from_value(value)?),
        }
    }

    /// Returns the report as JSON.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self).context("cannot serialize the report")? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::against::Against;
    use super::super::floor::{Floor, Judge};
    use super::super::{sample, verdict};
    use super::*;

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
        assert_eq!(chain("no"), "it is not JSON");
        assert_eq!(chain("{\"verbs\": {}}"), "it is not a report of `farreach bench`");
        assert_eq!(
            chain("{\"command\": \"bench\", \"schema_version\": 2}"),
            "its schema version is 2, and this farreach supports versions up to 1: upgrade farreach, or measure again"
        );
        assert!(chain("{\"command\": \"bench\", \"schema_version\": 1}").contains("missing field"));
        let missing = BenchReport::read(Path::new("/nowhere/base.json")).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read /nowhere/base.json");
        let failure = Failure::of(&missing);
        assert!(failure.cause.is_some() && failure.fix.is_some(), "{failure:?}");
    }
}
