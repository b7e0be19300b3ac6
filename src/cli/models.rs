//! `inferbench models`: the models of a suite.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::{Listing, without};
use crate::backend;
use crate::definition::{Case, Dtype, Model, ORIGINAL, Origin, Phase, Sizes, TensorSpec};
use crate::exit_codes;
use crate::fixture::{self, Reads};
use crate::harness::{Plan, make_plan};
use crate::onnx::cost;
use crate::paths::Paths;
use crate::report::Format;
use crate::report::numbers::{megabytes, rounded};
use crate::report::table::{Column, Table};
use crate::selection::{EffortArguments, PlannedCase, Selection};

const EVERY_TARGET: &str = "`models` shows models, whatever they are to run on: leave it out";

/// Show the models of a suite: parameters, size, operations, inputs
#[derive(Args)]
#[command(
    mut_args(|flag| without(flag, &["backend", "torch_mode", "device", "dtype", "batch_sizes"], EVERY_TARGET)),
    after_help = "The table also says which backends have an artifact.\n\nExample:\n  inferbench models --suite quick --format json"
)]
pub struct Arguments {
    /// Files and folders of models instead of the suite's
    #[arg(value_name = "FILE|FOLDER")]
    files: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let selection = Selection { files: arguments.files.clone(), ..arguments.selection.clone() };
    let Plan { cases, .. } = make_plan(&paths, None, &selection, &EffortArguments::default())?;
    let mut seen = BTreeSet::new();
    let texts = ["model", "variant", "family"].map(Column::text);
    let numbers = ["parameters", "size"].map(Column::number);
    let others = ["operations per sample", "inputs", "backends"].map(Column::text);
    let mut table =
        Table::new(texts.into_iter().chain(numbers).chain(others)).essential(&["variant"]).minor(&["family", "inputs"]);
    let mut objects = Vec::new();
    for PlannedCase { case, definition, .. } in &cases {
        if !seen.insert((&case.model, &case.variant, &case.dims)) {
            continue;
        }
        match definition {
            Ok(model) => {
                let size = size_bytes(model, &paths).map(|bytes| bytes as f64 / 1e6);
                let backends = backends_with_artifact(model);
                let (operations, costs) = costs_of_one(model, cases.iter().map(|planned| &planned.case));
                let inputs: Vec<String> = model.inputs.iter().map(TensorSpec::to_string).collect();
                table.row([
                    model.name.clone(),
                    model.variant.clone(),
                    model.family.clone(),
                    model.parameters.map(rounded).unwrap_or_default(),
                    size.map(megabytes).unwrap_or_default(),
                    operations.join(", "),
                    inputs.join(", "),
                    backends.join(" "),
                ]);
                if let Some(why) = costs.iter().find_map(|cost| cost["not_counted"].as_str()) {
                    table.footnote(format!("{}: its operations are unknown: {why}", model.name));
                }
                objects.push(json!({
                    "model": model.name, "variant": model.variant, "family": model.family,
                    "modality": model.modality, "parameters": model.parameters, "size_mb": size,
                    "costs": costs, "inputs": inputs, "backends": backends,
                }));
            }
            Err(reason) => {
                let unusable = format!("unusable: {reason}");
                table.row([case.model.as_str(), &case.variant, "", "", "", "", &unusable]);
                objects.push(json!({ "model": case.model, "variant": case.variant, "unusable": reason }));
            }
        }
    }
    Listing { table, objects: objects.into() }.print(arguments.format);
    Ok(exit_codes::OK)
}

/// The cost of one sample in each phase and at each sequence length of the model's cases: as a text, such as
/// `prefill seq32 39.6 M`, and as an object.
fn costs_of_one<'a>(model: &Model, cases: impl Iterator<Item = &'a Case>) -> (Vec<String>, Vec<Value>) {
    let own = cases.filter(|case| (&case.model, &case.variant) == (&model.name, &model.variant));
    let phases: BTreeSet<_> = own.map(|case| (case.phase, case.sequence_length)).collect();
    let counted = |(phase, sequence_length): (Phase, Option<usize>)| {
        // A model with a fixed batch computes all of it: one sample costs its part of that.
        let batch = model.fixed_batch().unwrap_or(1).max(1);
        let counted = cost(model, phase, Sizes { batch, sequence: sequence_length });
        let known = counted.as_ref().ok();
        let object = json!({
            "phase": phase, "sequence_length": sequence_length, "batch_size": batch,
            "flops": known.map(|cost| cost.flops), "bytes": known.map(|cost| cost.bytes).filter(|&bytes| bytes > 0),
            "arithmetic_intensity": known.filter(|_| model.dtype == Dtype::F32).and_then(|cost| cost.intensity()),
            "not_counted": counted.as_ref().err().map(|error| format!("{error:#}")),
        });
        let phase = (phase != Phase::Forward).then(|| phase.to_string());
        let length = sequence_length.map(|length| format!("seq{length}"));
        let operations = known.map_or("unknown".into(), |cost| rounded(cost.flops / batch as u64));
        ([phase, length, Some(operations)].into_iter().flatten().collect::<Vec<_>>().join(" "), object)
    };
    phases.into_iter().map(counted).unzip()
}

/// Bytes of the weights, whether they are prepared or not.
fn size_bytes(model: &Model, paths: &Paths) -> Option<u64> {
    let to_make = |dtype| fixture::bytes_to_prepare(model, &paths.prepared(), dtype, Reads::Graphs).ok();
    match &model.origin {
        Origin::Gguf { file } => Some(fixture::Artifacts::default().size_bytes([file.as_path()])),
        Origin::Files { onnx, torchscript, quantization, .. }
            if model.generation.is_none()
                && (onnx.is_none() || quantization.is_none() && model.dtype != Dtype::F16) =>
        {
            // A Python file is code without weights.
            let is_code = |file: &&Path| file.extension().is_some_and(|it| it == "py");
            let file = onnx.as_deref().or(torchscript.as_deref()).filter(|file| !is_code(file))?;
            let is_weights = |path: &PathBuf| path.extension().is_some_and(|it| it == "safetensors" || it == "bin");
            // The weights in a folder of a model hub are beside its config.json.
            let weights: Vec<PathBuf> = match file.file_name().is_some_and(|name| name == "config.json") {
                true => std::fs::read_dir(file.parent()?)
                    .ok()?
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(is_weights)
                    .collect(),
                false => vec![file.to_owned()],
            };
            Some(fixture::Artifacts::default().size_bytes(weights.iter().map(PathBuf::as_path)))
        }
        _ => match to_make(model.dtype)? {
            0 => {
                let artifacts = fixture::prepare_and_hold(model, &paths.prepared(), model.dtype).ok()?.artifacts;
                let graphs = artifacts.parts.iter().filter_map(|part| part.onnx.as_deref());
                Some(artifacts.size_bytes(graphs.chain(artifacts.gguf.as_deref())))
            }
            bytes if model.dtype == Dtype::F32 && model.blocks().is_none() && model.gguf_scheme().is_none() => {
                Some(bytes)
            }
            // Without the f32 weights that it is made from.
            bytes => {
                let mut own = Model { variant: ORIGINAL.into(), ..model.clone() };
                if let Origin::Packaged { quantization, .. } | Origin::Files { quantization, .. } = &mut own.origin {
                    *quantization = None;
                }
                let of_own = fixture::bytes_to_prepare(&own, &paths.prepared(), Dtype::F32, Reads::Graphs).ok()?;
                Some(bytes - of_own.min(bytes))
            }
        },
    }
}

fn backends_with_artifact(model: &Model) -> Vec<&'static str> {
    let has_artifact = |name: &&str| backend::registry::check_model(name, model, model.dtype).is_ok();
    backend::registry::real().map(|entry| entry.name).filter(has_artifact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_say_what_cases_run_on_are_refused() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            _arguments: Arguments,
        }
        let refused = |flag: &str, value: &str| {
            let said = <Cli as clap::Parser>::try_parse_from(["models", flag, value]);
            said.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for flag in ["--backend", "--torch-mode", "--device", "--dtype", "--batch-sizes"] {
            let message = refused(flag, "1");
            assert!(message.contains("whatever they are to run on"), "{message}");
        }
        assert_eq!(refused("--model", "digits"), "");
    }

    #[test]
    fn compilers_of_modules_have_no_artifact_in_an_archive() {
        let is_compiled = |file: &str| {
            let origin =
                Origin::Files { onnx: None, torchscript: Some(file.into()), reference: None, quantization: None };
            let model = Model { origin, ..Model::of_tensors("m", Vec::new(), Vec::new()) };
            backends_with_artifact(&model).iter().any(|name| ["torch-compile", "torch-aot"].contains(name))
        };
        assert_eq!(is_compiled("net.py"), cfg!(any(feature = "torch-compile", feature = "torch-aot")));
        assert!(!is_compiled("net.pt"));
    }
}
