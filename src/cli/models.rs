//! `inferbench models`: the models of a suite.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing};
use crate::backend::{self, NULL};
use crate::definition::{Dtype, EffortArguments, Model, Origin, PlannedCase, Selection, TensorSpec};
use crate::exit_codes;
use crate::fixture;
use crate::harness::{Plan, make_plan};
use crate::places::Places;

/// Show the models of a suite: parameters, size, inputs, and which backends have an artifact
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench models --suite quick --format json")]
pub struct Arguments {
    #[command(flatten)]
    selection: Selection,
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let places = Places::find();
    let Plan { cases, .. } = make_plan(&places, &arguments.selection, &EffortArguments::default())?;
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for PlannedCase { case, definition, .. } in &cases {
        if !seen.insert((&case.model, &case.variant)) {
            continue;
        }
        match definition {
            Ok(model) => {
                let megabytes = size_bytes(model, &places).map(|bytes| bytes as f64 / 1e6);
                let backends = backends_with_artifact(model);
                let inputs: Vec<String> = model.inputs.iter().map(TensorSpec::to_string).collect();
                rows.push(vec![
                    model.name.clone(),
                    model.variant.clone(),
                    model.family.clone(),
                    model.parameters.map(grouped).unwrap_or_default(),
                    megabytes.map(|megabytes| format!("{megabytes:.1}")).unwrap_or_default(),
                    inputs.join(", "),
                    backends.join(" "),
                ]);
                objects.push(json!({
                    "model": model.name, "variant": model.variant, "family": model.family,
                    "modality": model.modality, "parameters": model.parameters, "size_mb": megabytes,
                    "inputs": inputs, "backends": backends,
                }));
            }
            Err(reason) => {
                let reason_cell = format!("unusable: {reason}");
                let empty = String::new;
                rows.push(vec![
                    case.model.clone(),
                    case.variant.clone(),
                    empty(),
                    empty(),
                    empty(),
                    reason_cell,
                    empty(),
                ]);
                objects.push(json!({ "model": case.model, "variant": case.variant, "unusable": reason }));
            }
        }
    }
    let header = &["model", "variant", "family", "parameters", "MB", "inputs", "backends"];
    Listing { header, rows, objects: objects.into() }.print(arguments.format)?;
    Ok(exit_codes::OK)
}

/// Bytes of the weights, made or still to make.
fn size_bytes(model: &Model, places: &Places) -> Option<u64> {
    match &model.origin {
        Origin::Files { onnx, torchscript } => {
            let path = onnx.as_ref().or(torchscript.as_ref())?;
            std::fs::metadata(path).ok().map(|metadata| metadata.len())
        }
        Origin::Packaged { .. } => match fixture::bytes_to_prepare(model, &places.prepared(), Dtype::F32).ok()? {
            0 => {
                let artifacts = fixture::prepare(model, &places.prepared(), Dtype::F32).ok()?;
                Some(artifacts.size_bytes(artifacts.parts.iter().filter_map(|part| part.onnx.as_deref())))
            }
            bytes => Some(bytes),
        },
    }
}

fn backends_with_artifact(model: &Model) -> Vec<&'static str> {
    let has_artifact =
        |name: &&str| backend::find(name).is_ok_and(|backend| backend.check_model(model, Dtype::F32).is_ok());
    backend::all().into_iter().map(|(name, _)| name).filter(|name| *name != NULL).filter(has_artifact).collect()
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
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([7, 999, 1_000, 25_557_032].map(super::grouped), ["7", "999", "1,000", "25,557,032"]);
    }
}
