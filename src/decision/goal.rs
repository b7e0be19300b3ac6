//! The goals of a recommendation, and the quantity that each goal minimises.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Options, UnderLoad, own_memory, rate};
use crate::definition::device_kind;
use crate::run_data::Record;

/// The quantity by which the recommended case is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, clap::ValueEnum, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Goal {
    /// The median time of a call
    #[default]
    Latency,
    /// Samples, or tokens, per second
    Throughput,
    /// Energy per sample
    Energy,
    /// Price per million samples, or tokens, by a file of prices
    Cost,
    /// Size of the model's files
    Size,
    /// Peak memory: of the device if it has its own, otherwise of the process
    Memory,
}

/// Prices of machines, for the goal [`Goal::Cost`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The name of the currency, for readers.
    #[serde(default)]
    pub currency: String,
    /// Prices per hour by `HOST_ID/DEVICE`, `HOST_ID`, `DEVICE` or `default`.
    pub per_hour: BTreeMap<String, f64>,
}

impl Prices {
    /// The price per hour: of the device on this machine, or else of the machine, of the device, of its kind, or the
    /// default.
    pub fn per_hour_of(&self, host_id: &str, device: &str) -> Option<f64> {
        let of_device = format!("{host_id}/{device}");
        // `cuda` is also the price of `cuda:1`.
        let names = [of_device.as_str(), host_id, device, device_kind(device), "default"];
        names.into_iter().find_map(|name| self.per_hour.get(name).copied())
    }
}

impl Options {
    /// The quantity of a record that the goal minimises. If a load test shows a higher rate than sequential calls,
    /// rates and prices follow from the load test. Returns `None` if the quantity is not known.
    pub(super) fn quantity(&self, goal: Goal, record: &Record) -> Option<f64> {
        Some(goal.quantity(record, &self.prices)? / self.gain(goal, record))
    }

    /// The ratio of the highest rate within the limits in load tests to that of sequential calls; at least 1.
    pub(super) fn gain(&self, goal: Goal, record: &Record) -> f64 {
        let is_meant = goal.is_of_rate() && record.tokens_per_second.is_none();
        let loaded = || UnderLoad::of(&self.loads, record, &self.limits);
        let both = record.throughput_ips.filter(|_| is_meant).zip(loaded());
        both.map_or(1.0, |(rate, loaded)| (loaded.samples_per_s / rate).max(1.0))
    }
}

impl Goal {
    /// Whether the quantity follows from times, and scatters as times do.
    pub fn is_of_times(self) -> bool {
        !matches!(self, Goal::Size | Goal::Memory)
    }

    /// Whether the quantity follows from a rate, which several instances of a session can improve.
    pub fn is_of_rate(self) -> bool {
        matches!(self, Goal::Throughput | Goal::Cost)
    }

    /// The quantity that the goal minimises, by sequential calls. Returns `None` if it is not known.
    pub fn quantity(self, record: &Record, prices: &Prices) -> Option<f64> {
        let quantity = match self {
            Goal::Latency => record.latency_p50_ms,
            Goal::Throughput => rate(record).map(f64::recip),
            Goal::Energy => record.energy_j_per_sample,
            Goal::Cost => {
                let price = prices.per_hour_of(&record.host_id, &record.device)?;
                rate(record).map(|rate| price / 3600.0 / rate * 1e6)
            }
            Goal::Size => record.model_size_mb,
            Goal::Memory => own_memory(record),
        };
        quantity.filter(|quantity| quantity.is_finite() && *quantity > 0.0)
    }

    /// The quantity in words, for sentences such as "1.3 × the time per sample".
    pub fn measured_in(self) -> &'static str {
        match self {
            Goal::Latency => "the time",
            Goal::Throughput => "the time per sample",
            Goal::Energy => "the energy",
            Goal::Cost => "the price",
            Goal::Size => "the size",
            Goal::Memory => "the memory",
        }
    }
}
