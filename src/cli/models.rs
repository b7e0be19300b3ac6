//! `inferbench models`: the models of a suite.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing};
use crate::backend;
use crate::definition::{Case, Cost, Dtype, Model, Origin, Phase, Sizes, TensorSpec};
use crate::exit_codes;
use crate::fixture;
use crate::harness::{Plan, make_plan};
use crate::onnx::cost;
use crate::paths::Paths;
use crate::report::table::{Column, Table};
use crate::selection::{EffortArguments, PlannedCase, Selection};

/// Show the models of a suite: parameters, size, operations, inputs, and which backends have an artifact
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench models --suite quick --format json")]
pub struct Arguments {
    #[command(flatten)]
    selection: Selection,
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

/// Lists the models.
///
/// # Errors
/// The suite or a filter is wrong.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let Plan { cases, .. } = make_plan(&paths, &arguments.selection, &EffortArguments::default())?;
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for PlannedCase { case, definition, .. } in &cases {
        if !seen.insert((&case.model, &case.variant)) {
            continue;
        }
        match definition {
            Ok(model) => {
                let megabytes = size_bytes(model, &paths).map(|bytes| bytes as f64 / 1e6);
                let backends = backends_with_artifact(model);
                let phases = costs_of_one(model, cases.iter().map(|planned| &planned.case));
                let inputs: Vec<String> = model.inputs.iter().map(TensorSpec::to_string).collect();
                rows.push(vec![
                    model.name.clone(),
                    model.variant.clone(),
                    model.family.clone(),
                    model.parameters.map(grouped).unwrap_or_default(),
                    megabytes.map(|megabytes| format!("{megabytes:.1}")).unwrap_or_default(),
                    phases.iter().map(PhaseCost::to_string).collect::<Vec<_>>().join(", "),
                    inputs.join(", "),
                    backends.join(" "),
                ]);
                objects.push(json!({
                    "model": model.name, "variant": model.variant, "family": model.family,
                    "modality": model.modality, "parameters": model.parameters, "size_mb": megabytes,
                    "costs": phases.iter().map(PhaseCost::to_json).collect::<Vec<_>>(),
                    "inputs": inputs, "backends": backends,
                }));
            }
            Err(reason) => {
                let mut row = vec![case.model.clone(), case.variant.clone()];
                row.resize(6, String::new());
                row.push(format!("unusable: {reason}"));
                rows.push(row);
                objects.push(json!({ "model": case.model, "variant": case.variant, "unusable": reason }));
            }
        }
    }
    let (text, number) = (Column::text, Column::number);
    let columns = [
        text("model"),
        text("variant"),
        text("family"),
        number("parameters"),
        number("size").unit("MB"),
        text("GFLOPs per sample"),
        text("inputs"),
        text("backends"),
    ];
    Listing { table: Table::new(columns).with_rows(rows), objects: objects.into() }.print(arguments.format)?;
    Ok(exit_codes::OK)
}

/// The cost of one sample of a phase.
struct PhaseCost {
    phase: Phase,
    sequence_length: Option<usize>,
    cost: Result<Cost>,
}

/// The phases and sequence lengths of the model's cases, each once.
fn costs_of_one<'a>(model: &Model, cases: impl Iterator<Item = &'a Case>) -> Vec<PhaseCost> {
    let own = cases.filter(|case| (&case.model, &case.variant) == (&model.name, &model.variant));
    let phases: BTreeSet<_> = own.map(|case| (case.phase, case.sequence_length)).collect();
    let counted = |(phase, sequence)| PhaseCost {
        phase,
        sequence_length: sequence,
        cost: cost(model, phase, Sizes { batch: 1, sequence }),
    };
    phases.into_iter().map(counted).collect()
}

impl PhaseCost {
    fn to_json(&self) -> serde_json::Value {
        let counted = self.cost.as_ref().ok();
        json!({
            "phase": self.phase, "sequence_length": self.sequence_length, "batch_size": 1,
            "flops": counted.map(|cost| cost.flops), "bytes": counted.map(|cost| cost.bytes),
            "arithmetic_intensity": counted.and_then(|cost| cost.intensity()),
            "not_counted": self.cost.as_ref().err().map(|error| format!("{error:#}")),
        })
    }
}

impl fmt::Display for PhaseCost {
    /// `8.18`, `prefill seq32 0.0396`, `unknown`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.phase != Phase::Forward {
            write!(f, "{} ", self.phase)?;
        }
        if let Some(length) = self.sequence_length {
            write!(f, "seq{length} ")?;
        }
        match &self.cost {
            Ok(cost) => f.write_str(&significant(cost.flops as f64 / 1e9)),
            Err(_) => f.write_str("unknown"),
        }
    }
}

/// Three digits.
fn significant(number: f64) -> String {
    let decimals = if number > 0.0 { (2 - number.log10().floor() as i32).clamp(0, 9) } else { 0 };
    format!("{number:.*}", decimals as usize)
}

/// Bytes of the weights, made or still to make.
fn size_bytes(model: &Model, paths: &Paths) -> Option<u64> {
    let to_make = |dtype| fixture::bytes_to_prepare(model, &paths.prepared(), dtype).ok();
    match &model.origin {
        Origin::Files { onnx, torchscript, .. } => {
            Some(fixture::bytes_on_disk(onnx.as_ref().or(torchscript.as_ref())?))
        }
        Origin::Packaged { .. } => match to_make(model.dtype)? {
            0 => {
                let artifacts = fixture::prepare_and_hold(model, &paths.prepared(), model.dtype).ok()?.artifacts;
                Some(artifacts.size_bytes(artifacts.parts.iter().filter_map(|part| part.onnx.as_deref())))
            }
            bytes if model.dtype == Dtype::F32 => Some(bytes),
            // Without the f32 weights that it is made from.
            bytes => Some(bytes - to_make(Dtype::F32)?.min(bytes)),
        },
    }
}

fn backends_with_artifact(model: &Model) -> Vec<&'static str> {
    let has_artifact =
        |name: &&str| backend::find(name).is_ok_and(|backend| backend.check_model(model, model.dtype).is_ok());
    backend::registry::real().map(|entry| entry.name).filter(has_artifact).collect()
}

/// `25_557_032` as `25,557,032`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn operations_have_three_digits() {
        assert_eq!(
            [8.178, 35.12, 0.039_64, 512.3, 0.0].map(super::significant),
            ["8.18", "35.1", "0.0396", "512", "0"]
        );
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([7, 999, 1_000, 25_557_032].map(super::grouped), ["7", "999", "1,000", "25,557,032"]);
    }
}
