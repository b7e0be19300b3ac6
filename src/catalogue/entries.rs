//! The models that there are: the packaged ones of `models/zoo`, and the files that a user put into `models/exported`,
//! `models/trained` or `models/quantized`.
//!
//! A user's file `<model>[.<variant>].onnx`, `.pt` or `.safetensors` may have a TOML file of the same stem beside it,
//! which says what the file cannot (see `models/README.md`). A file that cannot be used stays in the catalogue, with
//! the reason: it becomes a record, not an abort.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::packaged::read_packaged;
use super::user_files::{is_model_file, read_files};
use crate::definition::{DataSource, Model, ORIGINAL, Origin, check_component, usable_name};

/// A model, or why a file of that name is not one.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub variant: String,
    pub place: Place,
    pub model: Result<Model, String>,
}

/// Where an entry of the catalogue was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `models/zoo`.
    Zoo,
    /// A user's file in one of the other folders of `models/`.
    Folder,
    /// A file that a suite names.
    Suite,
}

const USER_FOLDERS: [&str; 3] = ["exported", "trained", "quantized"];

/// All models below `models_folder`, packaged ones first, each kind in the order of its names.
///
/// # Errors
/// A folder cannot be listed. A model that cannot be read is an entry with its error.
pub fn read_catalogue(models_folder: &Path) -> std::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for folder in sorted_children(&models_folder.join("zoo"))? {
        if !folder.is_dir() {
            continue;
        }
        let name = file_name(&folder);
        match check_component(&name).and_then(|()| read_packaged(&folder)) {
            Ok(models) => entries.extend(models.into_iter().map(|model| Entry {
                name: name.clone(),
                variant: model.variant.clone(),
                place: Place::Zoo,
                model: Ok(model),
            })),
            Err(error) => {
                entries.push(Entry { name, variant: ORIGINAL.into(), place: Place::Zoo, model: Err(error) });
            }
        }
    }
    let packaged = originals(&entries);
    let models = entries.iter().filter_map(|entry| entry.model.as_ref().ok());
    let owned: BTreeSet<PathBuf> = models.flat_map(files_outside_the_zoo).collect();
    let mut taken: BTreeSet<(String, String)> =
        entries.iter().map(|entry| (entry.name.clone(), entry.variant.clone())).collect();

    for folder in USER_FOLDERS {
        let mut stems: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for path in sorted_children(&models_folder.join(folder))? {
            let is_toml = path.extension().is_some_and(|extension| extension == "toml");
            let is_owned = path.canonicalize().is_ok_and(|path| owned.contains(&path));
            if path.is_file() && (is_model_file(&path) || is_toml) && !is_owned {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                stems.entry(stem).or_default().push(path);
            }
        }
        for (stem, files) in stems {
            if !files.iter().any(|file| is_model_file(file)) {
                continue;
            }
            let (mut name, variant) = split_stem(&stem);
            let mut model = read_files(&name, &variant, &files, &packaged);
            if !taken.insert((name.clone(), variant.clone())) {
                model = Err(format!("{} has the name of another model: rename it", files[0].display()));
                name = format!("{name}-{folder}");
            }
            entries.push(Entry { name, variant, place: Place::Folder, model });
        }
    }
    Ok(entries)
}

/// The packaged models in their original form.
pub(super) fn originals(entries: &[Entry]) -> Vec<Model> {
    let is_original = |entry: &&Entry| entry.place == Place::Zoo && entry.variant == ORIGINAL;
    entries.iter().filter(is_original).filter_map(|entry| entry.model.as_ref().ok().cloned()).collect()
}

/// Files of a packaged model that are among those of users.
fn files_outside_the_zoo(model: &Model) -> Vec<PathBuf> {
    let of_origin = match &model.origin {
        Origin::Packaged { weights, .. } => vec![weights],
        Origin::Files { onnx, torchscript, .. } => vec![onnx, torchscript],
    };
    let samples = match &model.data_source {
        DataSource::Recorded(path) => Some(path),
        DataSource::Synthetic | DataSource::ImageFolder(_) => None,
    };
    let files = of_origin.into_iter().flatten().chain(samples);
    files.filter_map(|path| path.canonicalize().ok()).collect()
}

fn sorted_children(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut children: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|child| child.map(|child| child.path())).collect::<Result<_, _>>()?;
    children.sort();
    Ok(children)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `digits.int8-static` is the variant `int8-static` of `digits`; other characters than Criterion's ids allow become `-`.
fn split_stem(stem: &str) -> (String, String) {
    match stem.split_once('.') {
        Some((name, variant)) => (usable_name(name), usable_name(variant)),
        None => (usable_name(stem), ORIGINAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_names_model_and_variant() {
        assert_eq!(split_stem("digits.int8-static"), ("digits".into(), "int8-static".into()));
        assert_eq!(split_stem("My Model (v2)"), ("my-model--v2".into(), "original".into()));
    }
}
