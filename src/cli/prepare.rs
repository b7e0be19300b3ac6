//! `inferbench prepare`: makes the weights and graphs that a suite needs.

use std::collections::BTreeMap;

use clap::Args;

use crate::definition::{EffortArguments, Model, Selection};
use crate::exit_codes;
use crate::fixture;
use crate::harness::{Plan, make_plan, prepare_model};
use crate::places::Places;

/// Make the weights and graphs that a suite needs; `cargo bench` does so too where they are missing
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench prepare --suite quick")]
pub struct Arguments {
    #[command(flatten)]
    selection: Selection,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let places = Places::find();
    let Plan { cases, .. } = make_plan(&places, &arguments.selection, &EffortArguments::default())?;
    let usable = cases.iter().filter_map(|planned| planned.definition.as_ref().ok());
    let models: BTreeMap<String, &Model> = usable.map(|model| (model.artifact_folder_name(), model)).collect();
    let mut needed = 0;
    for model in models.values() {
        needed += fixture::bytes_to_prepare(model, &places.prepared()).unwrap_or(0);
    }
    if needed == 0 {
        eprintln!("{} models are prepared", models.len());
        return Ok(exit_codes::OK);
    }
    eprintln!("{:.1} MB are needed in {}", needed as f64 / 1e6, places.prepared().display());
    let mut exit_code = exit_codes::OK;
    for (name, model) in models {
        if let Err(error) = prepare_model(model, &places) {
            eprintln!("inferbench: {name}: {error}");
            exit_code = exit_codes::USAGE;
        }
    }
    Ok(exit_code)
}
