//! `inferbench report --variants MODEL`: the variants of a model, and the one to use.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;

use crate::cli::compare::noise_of_machine;
use crate::compare::Noise;
use crate::paths::Paths;
use crate::report::variants::{Goal, Options, Variants, compare};
use crate::report::{Format, ReportedRun};
use crate::run_data::Record;
use crate::selection::values::fraction_below_one;

/// The flags of this use of `report`.
#[derive(Args)]
pub struct VariantArguments {
    /// Compare the variants of this model and recommend one; times of several runs of one commit are averaged
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["charts", "model"])]
    pub variants: Option<String>,
    /// The quantity that the recommended variant is to be best at
    #[arg(long, value_enum, default_value = "latency", requires = "variants")]
    goal: Goal,
    /// Recommend a variant only if labelled samples show that it loses at most this accuracy [default: 1%]
    #[arg(long, value_name = "POINTS", value_parser = fraction_below_one, requires = "variants")]
    accuracy_loss: Option<f64>,
}

impl VariantArguments {
    /// The variants of the model in these runs.
    pub(super) fn compared(&self, model: &str, runs: &[ReportedRun], paths: &Paths) -> Result<Variants> {
        let records: Vec<Record> = runs.iter().flat_map(|run| &run.records).cloned().collect();
        let VariantArguments { goal, accuracy_loss, .. } = *self;
        let noise = noise_of(&records, paths);
        compare(&records, &Options { goal, accuracy_loss, noise, ..Options::new(model) })
    }
}

/// The table and the recommendation for a model of which several variants were measured.
pub fn variants_of(records: &[Record], model: &str, paths: &Paths) -> anyhow::Result<String> {
    let options = Options { noise: noise_of(records, paths), ..Options::new(model) };
    Ok(compare(records, &options)?.render(Format::Table))
}

/// The noise between processes on the noisiest of the machines. It is not less than what is assumed without a self-test: the
/// self-test's model is another one, and its calls are short.
fn noise_of(records: &[Record], paths: &Paths) -> Noise {
    let hosts: BTreeSet<&str> = records.iter().map(|record| record.host_id.as_str()).collect();
    let known = hosts.into_iter().map(|host_id| noise_of_machine(paths, host_id));
    known.fold(Noise::assumed(), |most, noise| if noise.deviation > most.deviation { noise } else { most })
}

/// `variants-resnet50.html`; whatever a record calls its model, it is the name of a file.
pub(super) fn file_name(model: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = model.chars().take(100).map(|c| if is_plain(c) { c } else { '-' }).collect();
    format!("variants-{name}.html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_any_model() {
        assert_eq!(file_name("qwen2-0.5b"), "variants-qwen2-0.5b.html");
        assert_eq!(file_name("../a b"), "variants-..-a-b.html");
    }
}
