//! The models that there are: the packaged ones of `models/zoo`, and the files that a user put into `models/exported`,
//! `models/trained` or `models/quantized`.
//!
//! A user's file `<model>[.<variant>].onnx`, `.pt` or `.safetensors` may have a TOML file of the same stem beside it,
//! which says what the file cannot (see `models/README.md`). A file that cannot be used stays in the catalogue, with
//! the reason: it becomes a record, not an abort.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::case::{Dtype, ORIGINAL, check_component, usable_name};
use super::data_source::DataSource;
use super::model::{Model, Origin, Tolerance, read_packaged, whole};
use super::onnx;
use super::suite::{Suite, SuiteModel};
use super::tensor_spec::{Dimension, TensorSpec};
use super::torchscript;

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
const EXTENSIONS: [&str; 4] = ["onnx", "pt", "safetensors", "toml"];

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
            let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            let is_owned = path.canonicalize().is_ok_and(|path| owned.contains(&path));
            if path.is_file() && EXTENSIONS.contains(&extension.as_str()) && !is_owned {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                stems.entry(stem).or_default().push(path);
            }
        }
        for (stem, files) in stems {
            if files.iter().all(|file| file.extension().is_some_and(|extension| extension == "toml")) {
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

/// Puts what a suite says of its models into the catalogue: files and weights of a user's, and where samples come from.
///
/// # Errors
/// A name is taken, a file is not there, or weights are of a model that is not packaged.
pub fn add_models_of_suite(catalogue: &mut Vec<Entry>, suite: &Suite) -> Result<(), String> {
    add_models_with_paths(catalogue, suite)?;
    for SuiteModel { name, weights, .. } in &suite.models {
        if let Some(weights) = weights {
            put_weights(catalogue, name, weights)?;
        }
    }
    for entry in catalogue {
        let own =
            suite.models.iter().find(|model| model.name == entry.name).and_then(|model| model.data_source.as_ref());
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
        let is_taken = |entry: &Entry| entry.name == *name && (entry.place != Place::Suite || entry.variant == variant);
        if catalogue.iter().any(is_taken) {
            return Err(format!(
                "model {name:?} {variant} has the name of another model: call it otherwise, as in `--path NAME={}`",
                path.display()
            ));
        }
        let files: Vec<PathBuf> =
            EXTENSIONS.iter().map(|extension| path.with_extension(extension)).filter(|file| file.is_file()).collect();
        let mut model = read_files(name, variant, &files, &packaged);
        if let Ok(model) = &mut model {
            model.family = family.clone().unwrap_or_else(|| model.family.clone());
            model.modality = modality.clone().unwrap_or_else(|| model.modality.clone());
        }
        catalogue.push(Entry { name: name.clone(), variant: variant.into(), place: Place::Suite, model });
    }
    Ok(())
}

/// The packaged models in their original form.
fn originals(entries: &[Entry]) -> Vec<Model> {
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

/// The TOML file beside a user's file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SidecarToml {
    /// The packaged model that the weights of a `.safetensors` file belong to.
    architecture: Option<String>,
    family: Option<String>,
    modality: Option<String>,
    /// Inputs of a `.pt` file, which does not say them; for an `.onnx` file they replace its own.
    inputs: Option<Vec<TensorSpec>>,
    outputs: Option<Vec<TensorSpec>>,
    /// Sizes of symbolic dimensions, by name.
    #[serde(default)]
    dimensions: BTreeMap<String, usize>,
    #[serde(default)]
    tolerance: Tolerance,
}

fn read_files(name: &str, variant: &str, files: &[PathBuf], packaged: &[Model]) -> Result<Model, String> {
    check_component(name)?;
    check_component(variant)?;
    let with_extension =
        |extension: &str| files.iter().find(|file| file.extension().is_some_and(|e| e == extension)).cloned();
    let (onnx, torchscript, weights) = (with_extension("onnx"), with_extension("pt"), with_extension("safetensors"));
    let sidecar_path = files[0].with_extension("toml");
    let sidecar: SidecarToml = match with_extension("toml") {
        None => SidecarToml::default(),
        Some(path) => {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
    };

    if onnx.is_none() && torchscript.is_none() {
        let weights = weights.ok_or("no model file")?;
        return with_own_weights(name, variant, weights, &sidecar, &sidecar_path, packaged);
    }
    let summary = onnx.as_deref().map(onnx::read_summary).transpose()?;
    let dtype = match (&summary, &torchscript) {
        (Some(summary), _) => summary.dtype,
        (None, Some(archive)) => torchscript::read_dtype(archive)?,
        (None, None) => Dtype::F32,
    };
    let own_inputs = summary.as_ref().map(|summary| summary.inputs.clone());
    let inputs = match sidecar.inputs.or(own_inputs) {
        Some(inputs) => inputs,
        None => return Err(missing_inputs(&sidecar_path, torchscript.as_deref())),
    };
    let own_outputs = summary.as_ref().map(|summary| summary.outputs.clone()).unwrap_or_default();
    let outputs = sidecar.outputs.unwrap_or(own_outputs);
    let inputs = with_dimensions(inputs, &sidecar.dimensions);
    let unknown = unknown_dimensions(&inputs);
    if !unknown.is_empty() {
        return Err(missing_dimensions(&sidecar_path, &unknown));
    }
    let (parts, phases) = whole(&inputs, with_dimensions(outputs, &sidecar.dimensions));
    Ok(Model {
        name: name.into(),
        variant: variant.into(),
        family: sidecar.family.unwrap_or_else(|| name.into()),
        modality: sidecar.modality.unwrap_or_else(|| "unknown".into()),
        parameters: summary.map(|summary| summary.parameters),
        inputs,
        parts,
        phases,
        generation: None,
        sequence_lengths: Vec::new(),
        tolerance: sidecar.tolerance,
        dtype,
        data_source: DataSource::Synthetic,
        origin: Origin::Files { onnx, torchscript, reference: None },
    })
}

fn with_own_weights(
    name: &str,
    variant: &str,
    weights: PathBuf,
    sidecar: &SidecarToml,
    sidecar_path: &Path,
    packaged: &[Model],
) -> Result<Model, String> {
    let names = || packaged.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ");
    let architecture = sidecar.architecture.as_deref().ok_or_else(|| {
        format!(
            "a safetensors file holds weights but no graph: say whose they are in {} with `architecture = \"<name>\"`, one of {}",
            sidecar_path.display(),
            names()
        )
    })?;
    let model = packaged.iter().find(|model| model.name == architecture).ok_or_else(|| {
        format!("{}: unknown architecture {architecture:?}; there are {}", sidecar_path.display(), names())
    })?;
    let own = model.with_weights(&weights).ok_or_else(|| format!("{architecture} cannot take other weights"))?;
    Ok(Model { name: name.into(), variant: variant.into(), ..own })
}

fn with_dimensions(mut specs: Vec<TensorSpec>, sizes: &BTreeMap<String, usize>) -> Vec<TensorSpec> {
    for dimension in specs.iter_mut().flat_map(|spec| &mut spec.shape) {
        if let Dimension::Symbol(symbol) = dimension
            && let Some(size) = sizes.get(symbol)
        {
            *dimension = Dimension::Fixed(*size);
        }
    }
    specs
}

fn unknown_dimensions(inputs: &[TensorSpec]) -> BTreeSet<String> {
    inputs
        .iter()
        .flat_map(|input| &input.shape)
        .filter_map(|dimension| match dimension {
            Dimension::Symbol(symbol) if symbol != super::tensor_spec::BATCH => Some(symbol.clone()),
            _ => None,
        })
        .collect()
}

fn missing_dimensions(sidecar: &Path, unknown: &BTreeSet<String>) -> String {
    let lines: Vec<String> = unknown.iter().map(|symbol| format!("{symbol:?} = 128")).collect();
    format!("the file leaves sizes open; write them into {}:\n[dimensions]\n{}", sidecar.display(), lines.join("\n"))
}

/// What to write for a TorchScript file, with the names that it says; integers and shapes are for the user to put right.
fn missing_inputs(sidecar: &Path, archive: Option<&Path>) -> String {
    let inputs = match archive.map(torchscript::read_inputs) {
        Some(Err(error)) => return error,
        Some(Ok(inputs)) => inputs,
        None => Vec::new(),
    };
    let lines = |(name, _): &(String, String)| match name.as_str() {
        name if name.contains("mask") => {
            format!("[[inputs]]\nname = {name:?}\ndtype = \"i64\"\nshape = [\"batch\", 128]\nconstant = 1\n")
        }
        name if name.contains("ids") || name.contains("token") => {
            format!("[[inputs]]\nname = {name:?}\ndtype = \"i64\"\nshape = [\"batch\", 128]\nbelow = 30522\n")
        }
        name => format!("[[inputs]]\nname = {name:?}\ndtype = \"f32\"\nshape = [\"batch\", 3, 224, 224]\n"),
    };
    let lines: String = inputs.iter().map(lines).collect();
    format!(
        "a TorchScript file does not say the shapes of its inputs; write them into {}, for example:\n{}",
        sidecar.display(),
        lines.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_names_model_and_variant() {
        assert_eq!(split_stem("digits.int8-static"), ("digits".into(), "int8-static".into()));
        assert_eq!(split_stem("My Model (v2)"), ("my-model--v2".into(), "original".into()));
    }

    #[test]
    fn open_dimensions_are_asked_for_with_the_lines_to_add() {
        let spec = |shape: Vec<Dimension>| TensorSpec::new("ids", crate::definition::ElementType::I64, shape);
        let symbol = |name: &str| Dimension::Symbol(name.into());
        let inputs = vec![spec(vec![symbol("batch"), symbol("sequence")])];
        let unknown = unknown_dimensions(&inputs);
        let message = missing_dimensions(Path::new("models/exported/m.toml"), &unknown);
        assert!(message.ends_with("models/exported/m.toml:\n[dimensions]\n\"sequence\" = 128"), "{message}");
        let sizes = BTreeMap::from([("sequence".to_owned(), 16)]);
        assert!(unknown_dimensions(&with_dimensions(inputs, &sizes)).is_empty());
    }
}
