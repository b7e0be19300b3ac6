//! `inferbench prepare`: makes the weights and graphs that a suite needs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::Args;

use crate::backend;
use crate::definition::{Dtype, Model};
use crate::exit_codes;
use crate::fixture::Reads;
use crate::harness::{Plan, make_plan, prepare_model};
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::selection::{EffortArguments, Selection};

/// Make the weights and graphs that a suite needs
#[derive(Args)]
#[command(
    after_help = "`inferbench run` and `cargo bench` also make what is missing.\n\nExample:\n  inferbench prepare --suite quick"
)]
pub struct Arguments {
    /// Files and folders of models instead of the suite's
    #[arg(value_name = "FILE|FOLDER")]
    files: Vec<String>,
    #[command(flatten)]
    selection: Selection,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let selection = Selection { files: arguments.files.clone(), ..arguments.selection.clone() };
    let Plan { cases, .. } = make_plan(&paths, None, &selection, &EffortArguments::default())?;
    let unusable = cases.iter().filter_map(|planned| {
        let why = planned.definition.as_ref().err()?;
        Some(format!("{} {}: {why}", planned.case.model, planned.case.variant))
    });
    BTreeSet::from_iter(unusable).iter().for_each(|model| eprintln!("left out: {model}"));
    let usable = cases.iter().filter_map(|planned| {
        let reads = backend::find(&planned.case.backend).map_or(Reads::Graphs, |backend| backend.reads());
        Some((planned.definition.as_ref().ok()?, planned.case.dtype, reads))
    });
    let key = |model: &Model| model.artifact_folder_name();
    let models: BTreeMap<(String, &str, Dtype, Reads), &Model> =
        usable.map(|(model, dtype, reads)| ((key(model), model.variant.as_str(), dtype, reads), model)).collect();
    let mut exit_code = exit_codes::OK;
    for ((name, _, dtype, reads), model) in &models {
        if let Err(error) = prepare_model(model, &paths, *dtype, *reads) {
            eprintln!("inferbench: {name} in {dtype}: {error:#}");
            exit_code = exit_codes::USAGE;
        }
    }
    if exit_code == exit_codes::OK {
        let names: BTreeSet<&String> = models.keys().map(|(name, ..)| name).collect();
        eprintln!("{}", plural(names.len(), "model is prepared", "models are prepared"));
    }
    Ok(exit_code)
}
