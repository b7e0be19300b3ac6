//! What a suite says of its models, put into the catalogue.

use std::path::Path;

use super::entries::{Entry, Place, originals};
use super::suite_tables::table_of;
use super::user_files::{check_model_file, files_of, read_files};
use crate::definition::{ORIGINAL, Suite, SuiteModel};

/// Puts what a suite says of its models into the catalogue: files and weights of a user's, and where samples come from.
///
/// # Errors
/// A name is taken, a file is not there or of an unknown kind, weights are of a model that is not packaged, or two tables
/// say different things of one model.
pub fn add_models_of_suite(catalogue: &mut Vec<Entry>, suite: &Suite) -> Result<(), String> {
    add_models_with_paths(catalogue, suite)?;
    for SuiteModel { name, weights, .. } in &suite.models {
        if let Some(weights) = weights {
            put_weights(catalogue, name, weights)?;
        }
    }
    for entry in catalogue {
        let own = table_of(suite, entry)?.and_then(|table| table.data_source.as_ref());
        let Ok(model) = &mut entry.model else { continue };
        let of_suite = suite.data_source.as_ref().filter(|source| source.is_for(model));
        if let Some(source) = own.or(of_suite) {
            model.data_source = source.clone();
        }
    }
    Ok(())
}

/// Lets a packaged model have the weights of a file instead of its own.
fn put_weights(catalogue: &mut Vec<Entry>, name: &str, weights: &Path) -> Result<(), String> {
    if !weights.is_file() {
        return Err(format!("model {name:?}: there is no file {}", weights.display()));
    }
    let of_others = |entry: &Entry| entry.name != name || entry.place != Place::Zoo;
    let (others, own): (Vec<Entry>, Vec<Entry>) = std::mem::take(catalogue).into_iter().partition(of_others);
    *catalogue = others;
    if own.is_empty() {
        let names: Vec<String> = originals(catalogue).into_iter().map(|model| model.name).collect();
        return Err(format!(
            "model {name:?}: `weights` are for a packaged model, of which the graph is known: one of {}",
            names.join(", ")
        ));
    }
    catalogue.extend(own.into_iter().filter_map(|entry| match &entry.model {
        Ok(model) => model.with_weights(weights).map(|model| Entry { model: Ok(model), ..entry }),
        Err(_) => Some(entry),
    }));
    Ok(())
}

fn add_models_with_paths(catalogue: &mut Vec<Entry>, suite: &Suite) -> Result<(), String> {
    let packaged = originals(catalogue);
    for SuiteModel { name, variant, path, family, modality, .. } in &suite.models {
        let Some(path) = path else { continue };
        let variant = variant.as_deref().unwrap_or(ORIGINAL);
        if !path.is_file() {
            return Err(format!("model {name:?}: there is no file {}", path.display()));
        }
        check_model_file(path).map_err(|error| format!("model {name:?}: {error}"))?;
        let is_taken = |entry: &Entry| entry.name == *name && (entry.place != Place::Suite || entry.variant == variant);
        if catalogue.iter().any(is_taken) {
            return Err(format!(
                "model {name:?} {variant} has the name of another model: call it otherwise, as in `--path NAME={}`, or by \
                 another `name` or `variant` of the suite",
                path.display()
            ));
        }
        let mut model = read_files(name, variant, &files_of(path), &packaged);
        if let Ok(model) = &mut model {
            model.family = family.clone().unwrap_or_else(|| model.family.clone());
            model.modality = modality.clone().unwrap_or_else(|| model.modality.clone());
        }
        catalogue.push(Entry { name: name.clone(), variant: variant.into(), place: Place::Suite, model });
    }
    Ok(())
}
