//! A metric: a figure of a case that is not a column of its record, one row of `metrics.csv`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::Record;

/// One row: a figure of a case in a run.
///
/// Nothing that writes, keeps or shows such rows knows which metrics there are: a new one is made where its value is
/// known, and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    pub run_id: String,
    /// The id of the case, as in its record.
    pub case_id: String,
    /// The name: `retrieval_at_1`. With the suffix `_change`, the value is the change of that metric from the
    /// original's.
    pub metric: String,
    pub value: f64,
    /// The 95 % interval of the value.
    pub lower: Option<f64>,
    pub upper: Option<f64>,
    /// `fraction` (1 is all), another unit, or nothing.
    pub unit: String,
    /// The number of samples that the value is computed from.
    pub samples: u64,
    /// The id of the case whose answers these were compared with. Absent if labels say what is right.
    pub compared_with: Option<String>,
    /// Which values are the better ones, if that is known.
    pub better: Option<Better>,
    /// The machine. Absent in what older versions wrote.
    pub host_id: Option<String>,
}

/// Which values of a metric are the better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
}

/// The unit of a fraction of all.
pub const FRACTION: &str = "fraction";

/// The end of the name of a metric that is a difference from the original.
pub const CHANGE: &str = "_change";

impl Metric {
    /// The name of the metric that this is the change of. Returns `None` if it is not a change.
    pub fn changed(&self) -> Option<&str> {
        self.metric.strip_suffix(CHANGE)
    }

    /// The loss against the original: the value, and the most that it may be by the interval. Returns `None` if this is
    /// not a change, or if it is unknown which values are better.
    pub fn loss(&self) -> Option<(f64, Option<f64>)> {
        self.changed()?;
        match self.better? {
            Better::Higher => Some((-self.value, self.lower.map(|lower| -lower))),
            Better::Lower => Some((self.value, self.upper)),
        }
    }

    /// The metrics of a record.
    pub fn all_of<'a>(metrics: &'a [Metric], record: &Record) -> Vec<&'a Metric> {
        let is_of_machine = |it: &Metric| it.host_id.as_ref().is_none_or(|host_id| *host_id == record.host_id);
        let is_of_record = |it: &&Metric| (&it.run_id, &it.case_id) == (&record.run_id, &record.case_id);
        metrics.iter().filter(is_of_record).filter(|it| is_of_machine(it)).collect()
    }
}
