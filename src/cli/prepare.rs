//! `inferbench prepare`: makes the weights and graphs that a suite needs.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;

use crate::definition::{Dtype, Model};
use crate::exit_codes;
use crate::fixture;
use crate::harness::{Plan, make_plan, prepare_model};
use crate::paths::Paths;
use crate::selection::{EffortArguments, Selection};

/// Make the weights and graphs that a suite needs; `cargo bench` does so too where they are missing
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench prepare --suite quick")]
pub struct Arguments {
    /// Files and folders of models instead of the suite's
    #[arg(value_name = "FILE|FOLDER")]
    files: Vec<String>,
    #[command(flatten)]
    selection: Selection,
}

/// Prepares the models.
///
/// # Errors
/// The suite or a filter is wrong.
pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let selection = Selection { files: arguments.files.clone(), ..arguments.selection.clone() };
    let Plan { cases, .. } = make_plan(&paths, &selection, &EffortArguments::default())?;
    let usable = cases.iter().filter_map(|planned| Some((planned.definition.as_ref().ok()?, planned.case.dtype)));
    let models: BTreeMap<(String, &str, Dtype), &Model> =
        usable.map(|(model, dtype)| ((model.artifact_folder_name(), model.variant.as_str(), dtype), model)).collect();
    let mut needed = 0;
    let bytes = |model: &Model, dtype| fixture::bytes_to_prepare(model, &paths.prepared(), dtype).unwrap_or(0);
    let named: BTreeMap<&String, &Model> = models.iter().map(|((name, ..), model)| (name, *model)).collect();
    for model in named.values() {
        needed += bytes(model, Dtype::F32);
    }
    for ((.., dtype), model) in &models {
        // The f32 files that every dtype is made from are counted above.
        needed += bytes(model, *dtype).saturating_sub(bytes(model, Dtype::F32));
    }
    if needed > 0 {
        eprintln!("{:.1} MB are needed in {}", needed as f64 / 1e6, paths.prepared().display());
    }
    let mut exit_code = exit_codes::OK;
    for ((name, _, dtype), model) in &models {
        if let Err(error) = prepare_model(model, &paths, *dtype) {
            eprintln!("inferbench: {name} in {dtype}: {error:#}");
            exit_code = exit_codes::USAGE;
        }
    }
    if needed == 0 && exit_code == exit_codes::OK {
        eprintln!("{} models are prepared", named.len());
    }
    Ok(exit_code)
}
