//! The catalogue: the packaged models of `models/zoo`, and the files that a user put into `models/exported`,
//! `models/trained` or `models/quantized`.
//!
//! Among users' files, a folder with a `model.toml` is a model that `inferbench import` made. Any other folder has the
//! models that it would have on the command line, such as the encoder and decoder that optimum wrote.
//! A user's file `<model>[.<variant>].onnx`, `.pt` or `.safetensors` may have a TOML file of the same stem beside it,
//! which says what the file cannot (see `models/README.md`). A file that cannot be used stays in the catalogue with
//! the reason, and becomes a record.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use fs_err as fs;

use super::named_files::{file_stem, files_below, models_of_paths, split_stem, stem};
use super::packaged::read_packaged;
use super::user_files::{MODEL_TOML, files_of, is_model_file, read_files};
use crate::definition::{
    CaseFailure, DataSource, Dims, Model, ORIGINAL, Origin, SuiteModel, check_component, usable_name,
};
use crate::gguf::Architecture;
use crate::paths::Paths;

/// One variant of a model, or the reason why it cannot be used.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub variant: String,
    /// The model of the Hugging Face hub that the name stands for, such as `google-bert/bert-base-uncased`.
    pub hub_id: Option<String>,
    pub place: Place,
    /// The sizes that a suite or a flag gives to the model's open dimensions. Each of several sizes has its own entry.
    pub dims: Dims,
    pub model: Result<Model, CaseFailure>,
}

impl Entry {
    /// An entry of a model without a hub id and with its own sizes.
    pub fn new(name: String, variant: String, place: Place, model: Result<Model, CaseFailure>) -> Self {
        Entry { name, variant, hub_id: None, place, dims: Dims::default(), model }
    }
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
    /// Made from another entry.
    Derived,
}

pub(super) fn failed(error: anyhow::Error) -> CaseFailure {
    error.downcast().unwrap_or_else(|error| CaseFailure::failed(format!("{error:#}")))
}

/// The names of the packaged models.
///
/// # Errors
/// The folder cannot be read.
pub fn packaged_names(models_folder: &Path) -> Result<BTreeSet<String>> {
    let folders = sorted_children(&models_folder.join("zoo"))?.into_iter().filter(|path| path.is_dir());
    Ok(folders.filter_map(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())).collect())
}

/// Reads all models below `models_folder`: packaged ones first, then those of users, each sorted by name.
///
/// # Errors
/// A folder cannot be listed. A model that cannot be read is an entry with its error.
pub fn read_catalogue(models_folder: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for folder in sorted_children(&models_folder.join("zoo"))?.into_iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (hub_id, models) = match check_component(&name).and_then(|()| read_packaged(&folder)) {
            Ok(packaged) => (packaged.hub_id, packaged.models.into_iter().map(Ok).collect()),
            Err(error) => (None, vec![Err(failed(error))]),
        };
        entries.extend(models.into_iter().map(|model| {
            let variant = model.as_ref().map_or(ORIGINAL, |model: &Model| model.variant.as_str()).to_owned();
            Entry { hub_id: hub_id.clone(), ..Entry::new(name.clone(), variant, Place::Zoo, model) }
        }));
    }
    let packaged = originals(&entries);
    let models = entries.iter().filter_map(|entry| entry.model.as_ref().ok());
    let owned: BTreeSet<PathBuf> = models.flat_map(files_outside_the_zoo).collect();
    let mut taken: BTreeSet<(String, String)> =
        entries.iter().map(|entry| (entry.name.clone(), entry.variant.clone())).collect();

    for folder in Paths::find().users_models(models_folder) {
        let mut seen = BTreeSet::new();
        for child in sorted_children(&folder)? {
            let is_owned = child.canonicalize().is_ok_and(|path| owned.contains(&path));
            let name_of_folder = || usable_name(&child.file_name().unwrap_or_default().to_string_lossy());
            // Other files beside a graph may be variants of it.
            let is_own = |file: &PathBuf| file.with_extension("toml") == child.join(MODEL_TOML);
            let is_form = |file: &PathBuf| {
                file.parent() == Some(&child) && split_stem(&file_stem(file)).0 == file_stem(Path::new(MODEL_TOML))
            };
            let is_other_form = |file: &PathBuf| is_form(file) && !is_own(file);
            let has_one_form = |files: &[PathBuf]| files.iter().any(is_own) && !files.iter().any(is_other_form);
            let is_one_model = || child.join("weights.toml").is_file() || has_one_form(&files_below(&child));
            let found = if child.join(MODEL_TOML).is_file() && is_one_model() {
                vec![(name_of_folder(), ORIGINAL.to_owned(), child.join(MODEL_TOML))]
            } else if child.is_dir() && !files_below(&child).is_empty() {
                models_of_folder(&child).unwrap_or_else(|why| {
                    let (name, variant) = (name_of_folder(), ORIGINAL.to_owned());
                    entries.push(Entry::new(name, variant, Place::Folder, Err(failed(why))));
                    Vec::new()
                })
            } else if is_model_file(&child) && !is_owned && seen.insert(file_stem(&child)) {
                let (name, variant) = split_stem(&file_stem(&child));
                vec![(name, variant, child)]
            } else {
                Vec::new()
            };
            for (mut name, variant, path) in found {
                let mut model = read_files(&name, &variant, &files_of(&path), &packaged);
                if !taken.insert((name.clone(), variant.clone())) {
                    model = Err(anyhow!("{} has the name of another model: rename it", path.display()));
                    name = format!("{name}-{}", folder.file_name().unwrap_or_default().to_string_lossy());
                }
                entries.push(Entry::new(name, variant, Place::Folder, model.map_err(failed)));
            }
        }
    }
    add_derived(&mut entries);
    Ok(entries)
}

/// The names, variants and files of the models in a folder, such as one that optimum wrote, as if the folder were named
/// on the command line.
///
/// # Errors
/// Two files have the same name.
fn models_of_folder(folder: &Path) -> Result<Vec<(String, String, PathBuf)>> {
    let models = models_of_paths(&[folder.display().to_string()])?.into_iter();
    let named = models.filter_map(|SuiteModel { name, variant, path, .. }| {
        Some((name, variant.unwrap_or_else(|| ORIGINAL.to_owned()), path?))
    });
    Ok(named.collect())
}

/// Adds the variants that can be made from the entries, except those whose name an entry has already.
pub(super) fn add_derived(entries: &mut Vec<Entry>) {
    let models = entries.iter().filter_map(|entry| entry.model.as_ref().ok());
    let gguf = |model: &Model| match &model.origin {
        Origin::Packaged { folder, .. } if Architecture::of_folder(folder).is_ok() => model.gguf_variants(),
        _ => Vec::new(),
    };
    let forms = |model: &Model| [model.derived_variants(), gguf(model), model.block_variants()].concat();
    let derived: Vec<Model> = models.flat_map(forms).collect();
    for model in derived {
        if !entries.iter().any(|entry| entry.name == model.name && entry.variant == model.variant) {
            let (name, variant) = (model.name.clone(), model.variant.clone());
            entries.push(Entry::new(name, variant, Place::Derived, Ok(model)));
        }
    }
}

/// Finds the name of a model by what a user wrote: its name or hub id in upper or lower case, a hub id without its
/// organisation, or the name of its file. Returns `None` if there is no such model.
pub fn find_name<'a>(written: &str, catalogue: &'a [Entry]) -> Option<&'a str> {
    let find = |is_it: &dyn Fn(&Entry) -> bool| catalogue.iter().find(|entry| is_it(entry)).map(|entry| &*entry.name);
    let is_hub_id = |entry: &Entry| {
        let Some(hub_id) = entry.hub_id.as_deref() else { return false };
        let model = hub_id.rsplit('/').next().unwrap_or(hub_id);
        [hub_id, model].iter().any(|name| name.eq_ignore_ascii_case(written))
    };
    let path = Path::new(written);
    let of_file = if is_model_file(path) { stem(path) } else { String::new() };
    let (model, _) = split_stem(&of_file);
    find(&|entry| entry.name == written)
        .or_else(|| find(&|entry| entry.name.eq_ignore_ascii_case(written)))
        .or_else(|| find(&is_hub_id))
        .or_else(|| find(&|entry| entry.name == usable_name(&of_file)))
        .or_else(|| find(&|entry| entry.name == model))
}

/// The originals of the packaged models.
pub(super) fn originals(entries: &[Entry]) -> Vec<Model> {
    let is_original = |entry: &&Entry| entry.place == Place::Zoo && entry.variant == ORIGINAL;
    entries.iter().filter(is_original).filter_map(|entry| entry.model.as_ref().ok().cloned()).collect()
}

/// The files of a packaged model that may be among users' files: graphs, weights and recorded samples.
fn files_outside_the_zoo(model: &Model) -> Vec<PathBuf> {
    let samples = if let DataSource::Recorded(path) = &model.data_source { Some(path) } else { None };
    model.origin.files().chain(samples).filter_map(|path| path.canonicalize().ok()).collect()
}

pub(super) fn sorted_children(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let children = fs::read_dir(folder)?.map(|child| child.map(|child| child.path()));
    let mut children: Vec<PathBuf> = children.collect::<Result<_, _>>()?;
    children.sort();
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::models_of_files;

    #[test]
    fn a_part_of_a_language_model_is_found_by_its_file() {
        for file in ["t5/decoder_model_merged.onnx", "t5/decoder_model_quantized.onnx", "t5/Net.onnx"] {
            let name = models_of_files(&[file.to_owned()]).unwrap().remove(0).name;
            let failure = CaseFailure::unavailable("it is not read here");
            let catalogue = [Entry::new(name.clone(), ORIGINAL.into(), Place::Suite, Err(failure))];
            assert_eq!(find_name(file, &catalogue), Some(name.as_str()), "{file}");
        }
    }

    #[test]
    fn models_are_found_as_people_write_them() {
        let catalogue = read_catalogue(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        for (written, name) in [
            ("resnet50", "resnet50"),
            ("ResNet50", "resnet50"),
            ("bert-base-uncased", "bert-base"),
            ("google-bert/BERT-base-uncased", "bert-base"),
            ("microsoft/resnet-50", "resnet50"),
            ("Digits.onnx", "digits"),
            ("exported/digits.int8.pt", "digits"),
        ] {
            assert_eq!(find_name(written, &catalogue), Some(name), "{written}");
        }
        for unknown in ["", "resnet", "digits.txt", ".onnx"] {
            assert_eq!(find_name(unknown, &catalogue), None, "{unknown}");
        }
    }
}
