//! Makes a model from a user's files of one stem: a graph in one or two formats, or weights of a packaged model, and a
//! TOML file with what these lack.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::decoders::as_language_model;
use super::gguf_files::{self, GGUF};
use super::packaged::read_packaged;
use super::recorded_tensors::reference_of;
use super::usual_sizes::{with_batch_of_states, with_usual_values};
use crate::definition::{
    CaseFailure, Dimension, Dtype, ElementType, Generation, Judge, Model, Origin, PhasePlan, SuiteModel, TensorSpec,
    Tolerance, check_component, with_dimensions,
};
use crate::onnx;
use crate::paths::is_trusted;

/// Extensions of files that are read as graphs.
const GRAPHS: [&str; 2] = ["onnx", "pt"];
/// Extensions of files whose inputs only PyTorch can tell: modules in Python, and exported programs. They are models if
/// a user names them, and not if they merely lie in a folder.
const MODULES: [&str; 2] = ["py", "pt2"];
/// The file in a model hub's folder that names the class of the weights. It stands for that folder.
const CONFIGURATION: &str = "config.json";
/// The extension of a file that is read as weights without a graph.
const WEIGHTS: &str = "safetensors";
const TOML: &str = "toml";
/// The file that `inferbench import` writes into a model's folder. The folder names the model.
pub(super) const MODEL_TOML: &str = "model.toml";

pub(super) fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|own| own == extension)
}

/// Whether the file is a graph, by its name. Files of the same stem belong to it.
pub fn is_graph(file: &Path) -> bool {
    GRAPHS.iter().any(|extension| has_extension(file, extension))
}

/// Reads the inputs of a file with a module.
pub type ModuleInputs = fn(&Path) -> Result<Vec<TensorSpec>, CaseFailure>;

static MODULE_INPUTS: OnceLock<ModuleInputs> = OnceLock::new();

/// Sets the function of a backend that reads the inputs of modules. This room must not depend on backends.
pub fn ask_for_module_inputs(by: ModuleInputs) {
    let _ = MODULE_INPUTS.set(by);
}

fn inputs_of_module(file: &Path) -> Result<Vec<TensorSpec>, CaseFailure> {
    let Some(ask) = MODULE_INPUTS.get() else {
        return Err(CaseFailure::unsupported(format!("{}: no backend says the inputs of modules", file.display())));
    };
    ask(file)
}

/// Whether only PyTorch can tell the inputs of a file, by its name.
pub fn is_module(file: &Path) -> bool {
    is_configuration(file) || MODULES.iter().any(|extension| has_extension(file, extension))
}

fn is_configuration(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == CONFIGURATION)
}

/// The configuration in a model hub's folder, which has weights beside it. Returns `None` for other folders.
pub(super) fn configuration_of(folder: &Path) -> Option<PathBuf> {
    let has_weights = ["model.safetensors", "pytorch_model.bin"]
        .iter()
        .any(|weights| folder.join(weights).is_file() || folder.join(format!("{weights}.index.json")).is_file());
    Some(folder.join(CONFIGURATION)).filter(|file| file.is_file() && has_weights)
}

/// Whether a file of this name is read as a model.
pub fn is_model_file(file: &Path) -> bool {
    is_graph(file) || is_gguf(file) || has_extension(file, WEIGHTS)
}

/// Whether the file is a GGUF file, by its name.
pub(super) fn is_gguf(file: &Path) -> bool {
    has_extension(file, GGUF)
}

/// The folder of a file, if it is laid out as in `models/zoo`, with graphs that have no weights inside.
fn packaged_folder(file: &Path) -> Option<&Path> {
    let is_packaged = |folder: &&Path| [MODEL_TOML, "weights.toml"].iter().all(|name| folder.join(name).is_file());
    file.parent().filter(is_packaged)
}

/// The file that stands for the model of `file`: all files of a folder laid out as in `models/zoo` are one model.
pub(super) fn standing_for(file: PathBuf) -> PathBuf {
    packaged_folder(&file).map(|folder| folder.join(MODEL_TOML)).unwrap_or(file)
}

/// Whether a file has weights, and a TOML file beside it says whose. Beside a graph of the same stem, the TOML file is the graph's, and
/// the tensors are its reference.
pub fn is_weights_with_toml(file: &Path) -> bool {
    let has_beside = |extension: &str| file.with_extension(extension).is_file();
    has_extension(file, WEIGHTS) && has_beside(TOML) && !GRAPHS.into_iter().any(has_beside)
}

/// # Errors
/// A file of this name is not read as a model; the message lists the extensions that are.
pub fn check_model_file(file: &Path) -> Result<()> {
    ensure!(
        is_model_file(file) || is_module(file) || packaged_folder(file).is_some(),
        "{} is not read as a model: there are `.onnx` (an ONNX graph), `.pt` (a TorchScript archive, as of \
         `torch.jit.save`), `.pt2` (of `torch.export.save`), `.py` (with a function `make` that returns a module and its inputs), \
         `.gguf` (a language model of llama.cpp) and `.safetensors` (weights of a packaged model)",
        file.display()
    );
    Ok(())
}

/// A model's file and those that belong to it: another format of a graph, and the TOML file.
pub fn files_of(named: &Path) -> Vec<PathBuf> {
    let formats: &[&str] = match named {
        _ if is_graph(named) || has_extension(named, TOML) => &GRAPHS,
        _ if is_configuration(named) => return vec![named.to_owned()],
        _ if is_module(named) => &GRAPHS[..1],
        _ => &[],
    };
    let others = formats.iter().chain([&TOML]).map(|extension| named.with_extension(extension));
    let others = others.filter(|file| file != named && file.is_file());
    std::iter::once(named.to_owned()).chain(others).collect()
}

/// What the TOML file beside a graph may say.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphToml {
    family: Option<String>,
    modality: Option<String>,
    /// Inputs of a `.pt` file, which does not have them; for an `.onnx` file they replace its own.
    inputs: Option<Vec<TensorSpec>>,
    outputs: Option<Vec<TensorSpec>>,
    /// Sizes of symbolic dimensions, by name.
    #[serde(default)]
    dimensions: BTreeMap<String, usize>,
    tolerance: Option<Tolerance>,
    /// How the answers to samples are judged, if family and outputs do not tell.
    judge: Option<Judge>,
    /// How a language model makes tokens, if the names in its files do not tell.
    generation: Option<Generation>,
    /// Which files run in which phase of a language model; the default is the graph alone.
    #[serde(default)]
    phases: Vec<PhasePlan>,
}

/// What the TOML file beside weights says; everything else comes from the architecture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightsToml {
    /// The packaged model that the weights belong to.
    architecture: String,
    family: Option<String>,
    modality: Option<String>,
    tolerance: Option<Tolerance>,
}

/// What the TOML file beside a GGUF file says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GgufToml {
    family: Option<String>,
    modality: Option<String>,
    tolerance: Option<Tolerance>,
}

/// # Errors
/// The file cannot be read, lacks a key or has unknown ones.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    toml::from_str(&fs_err::read_to_string(path)?).with_context(|| path.display().to_string())
}

/// The model of files that share a folder and a stem.
///
/// # Errors
/// A file cannot be read, or the TOML file lacks something or has something that does not belong there.
pub fn read_files(name: &str, variant: &str, files: &[PathBuf], packaged: &[Model]) -> Result<Model> {
    check_component(name)?;
    check_component(variant)?;
    if let Some(folder) = files.first().and_then(|file| packaged_folder(file)) {
        let original = read_packaged(folder)?.models.into_iter().next().context("no model")?;
        return Ok(Model { name: name.into(), variant: variant.into(), ..original });
    }
    if let [file, ..] = files
        && is_gguf(file)
    {
        return gguf_model(name, variant, files);
    }
    let with_extension = |extension: &str| files.iter().find(|file| has_extension(file, extension)).cloned();
    let [onnx, torchscript] = GRAPHS.map(with_extension);
    let configuration = || files.iter().find(|file| is_configuration(file)).cloned();
    let module = MODULES.into_iter().find_map(with_extension).or_else(configuration);
    let torchscript = module.clone().or(torchscript);
    let Some(graph) = onnx.as_ref().or(torchscript.as_ref()) else {
        let weights = with_extension(WEIGHTS).context("no model file")?;
        return with_own_weights(name, variant, &weights, packaged);
    };
    let sidecar: GraphToml = with_extension(TOML).map(|path| read_toml(&path)).transpose()?.unwrap_or_default();
    let summary = onnx.as_deref().map(onnx::read_summary).transpose()?;
    let dtype = match (&summary, &torchscript) {
        (Some(summary), _) => summary.dtype,
        (None, Some(archive)) if module.is_none() => onnx::read_dtype(archive)?,
        (None, _) => Dtype::F32,
    };
    let may_make_tokens = summary.is_some() && sidecar.inputs.is_none();
    ensure!(
        may_make_tokens || sidecar.generation.is_none(),
        "[generation] is for an .onnx file, which has its inputs itself"
    );
    let inputs = match (sidecar.inputs, &summary) {
        (Some(inputs), _) => inputs,
        (None, Some(summary)) => {
            let is_only = summary.inputs.len() == 1;
            let inputs = summary.inputs.iter().map(|input| with_usual_values(input.clone(), is_only));
            with_batch_of_states(inputs.collect())
        }
        (None, None) if module.is_some() => inputs_of_module(graph)?,
        // A pickled module.
        (None, None) if is_trusted(graph) && onnx::read_inputs(graph).is_err() => inputs_of_module(graph)?,
        (None, None) => inputs_of_archive(graph)?,
    };
    let own_outputs = summary.as_ref().map(|summary| summary.outputs.clone()).unwrap_or_default();
    let outputs = sidecar.outputs.unwrap_or(own_outputs);
    let mut open = [inputs.as_slice(), &outputs].concat();
    ensure!(sidecar.generation.is_some() || sidecar.phases.is_empty(), "[[phases]] needs a table [generation]");
    let has_zero = |input: &TensorSpec| input.shape.contains(&Dimension::Fixed(0));
    ensure!(!inputs.iter().any(has_zero), "the sizes of an input are numbers from 1 on");
    let is_endless = |input: &TensorSpec| input.constant.is_some_and(|number| !number.is_finite());
    ensure!(!inputs.iter().any(is_endless), "the constant of an input is a finite number");
    sidecar.tolerance.iter().try_for_each(Tolerance::check)?;
    let reference = reference_of(graph, &inputs, &outputs);
    let model = Model {
        variant: variant.into(),
        family: sidecar.family.unwrap_or_else(|| name.into()),
        modality: sidecar.modality.unwrap_or_else(|| "unknown".into()),
        parameters: summary.as_ref().map(|summary| summary.parameters),
        tolerance: sidecar.tolerance.unwrap_or_default(),
        dtype,
        judge: sidecar.judge,
        origin: Origin::Files { onnx: onnx.clone(), torchscript: torchscript.clone(), reference, quantization: None },
        ..Model::of_tensors(name, inputs, with_dimensions(outputs, &sidecar.dimensions))
    };
    let model = match (&onnx, &summary) {
        (Some(file), Some(summary)) if may_make_tokens => {
            let said = sidecar.generation.map(|generation| (generation, sidecar.phases));
            as_language_model(model, file, summary, said)?
        }
        _ => model,
    };
    open.extend(model.inputs.iter().cloned());
    let all = with_dimensions(open.clone(), &sidecar.dimensions);
    for (symbol, size) in &sidecar.dimensions {
        let mut others = sidecar.dimensions.clone();
        others.remove(symbol);
        let said = || format!("{}: [dimensions] {symbol} = {size}", graph.with_extension(TOML).display());
        ensure!(*size > 0, "{}: a size is a number from 1 on", said());
        let inputs = || model.inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        ensure!(
            with_dimensions(open.clone(), &others) != all,
            "{}: the file leaves no size of this name open; its inputs are {}",
            said(),
            inputs()
        );
    }
    let inputs = with_dimensions(model.inputs.clone(), &sidecar.dimensions);
    Ok(model.with_inputs(inputs))
}

/// The model of a GGUF file, with what a TOML file beside it says.
fn gguf_model(name: &str, variant: &str, files: &[PathBuf]) -> Result<Model> {
    let model = gguf_files::model_of(name, variant, &files[0])?;
    let Some(path) = files.iter().find(|file| has_extension(file, TOML)) else { return Ok(model) };
    let GgufToml { family, modality, tolerance } = read_toml(path)?;
    Ok(Model {
        family: family.unwrap_or(model.family),
        modality: modality.unwrap_or(model.modality),
        tolerance: tolerance.unwrap_or(model.tolerance),
        ..model
    })
}

fn with_own_weights(name: &str, variant: &str, weights: &Path, packaged: &[Model]) -> Result<Model> {
    let path = weights.with_extension(TOML);
    ensure!(
        path.is_file(),
        "a safetensors file holds weights but no graph: say whose they are in {} with `architecture = \"<name>\"`, one of {}",
        path.display(),
        names_of(packaged)
    );
    let WeightsToml { architecture, family, modality, tolerance } = read_toml(&path)?;
    let unknown =
        || format!("{}: unknown architecture {architecture:?}; there are {}", path.display(), names_of(packaged));
    let model = packaged.iter().find(|model| model.name == architecture).with_context(unknown)?;
    let own = model.with_weights(weights).with_context(|| format!("{architecture} cannot take other weights"))?;
    Ok(Model {
        name: name.into(),
        variant: variant.into(),
        family: family.unwrap_or(own.family),
        modality: modality.unwrap_or(own.modality),
        tolerance: tolerance.map_or_else(|| own.tolerance.clone(), |said| said.or(&own.tolerance)),
        ..own
    })
}

pub(super) fn names_of(models: &[Model]) -> String {
    models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Gives a model of a file the inputs and the reference of its table in a suite. Returns the inputs that the file does not have.
///
/// # Errors
/// The file has only weights, whose architecture determines both; the reference does not exist; or an input is wrong.
pub(super) fn apply_table(model: &mut Model, table: &SuiteModel) -> Result<Vec<String>> {
    if table.inputs.is_empty() && table.reference.is_none() {
        return Ok(Vec::new());
    }
    let Origin::Files { reference, .. } = &mut model.origin else {
        bail!("its inputs and its reference are those of its architecture");
    };
    if let Some(path) = &table.reference {
        ensure!(path.exists(), "there is no reference {}", path.display());
        *reference = Some(path.clone());
    }
    let mut unknown = Vec::new();
    let mut inputs = model.inputs.clone();
    for text in &table.inputs {
        let given: TensorSpec = text.parse()?;
        let has_values = given.below.is_some() || given.constant.is_some();
        match inputs.iter_mut().find(|input| input.name == given.name) {
            Some(input) if has_values => *input = given,
            Some(input) => {
                // A constant that its name suggested may be wrong for floats; an integer mask stays a mask.
                input.constant = input.constant.filter(|_| !given.dtype.is_floating());
                (input.dtype, input.shape) = (given.dtype, given.shape);
            }
            None => unknown.push(format!("input {:?}", given.name)),
        }
    }
    if !table.inputs.is_empty() {
        model.batch_of_sizes = None;
    }
    *model = model.clone().with_inputs(inputs);
    Ok(unknown)
}

/// The inputs of a TorchScript archive, which has their names but not their shapes.
fn inputs_of_archive(archive: &Path) -> Result<Vec<TensorSpec>> {
    let input = |name: String| {
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let dtype = if has(&["mask", "ids", "token"]) { ElementType::I64 } else { ElementType::F32 };
        let constant = has(&["mask"]).then_some(1.0);
        TensorSpec { constant, ..TensorSpec::of_any_shape(name, dtype) }
    };
    Ok(onnx::read_inputs(archive)?.into_iter().map(input).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Place, read_catalogue};

    fn weights_with(toml: &str) -> Result<Model> {
        let entries = read_catalogue(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        let zoo = entries.into_iter().filter(|entry| entry.place == Place::Zoo);
        let packaged: Vec<Model> = zoo.filter_map(|entry| entry.model.ok()).collect();
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("own.safetensors");
        std::fs::write(&weights, "").unwrap();
        std::fs::write(weights.with_extension("toml"), toml).unwrap();
        read_files("own", "original", &files_of(&weights), &packaged)
    }

    #[test]
    fn weights_are_what_their_toml_says_and_else_what_their_architecture_is() {
        let plain = weights_with("architecture = 'digits'").unwrap();
        assert_eq!((plain.name.as_str(), plain.family.as_str(), plain.modality.as_str()), ("own", "cnn", "image"));
        assert_eq!(
            (plain.tolerance.of(Dtype::F32), plain.data_source.name().as_str()),
            (Some(1e-4), "digits-held-out")
        );
        let said = "architecture = 'digits'\nfamily = 'mine'\nmodality = 'scan'\n[tolerance]\nf16 = 0.5";
        let own = weights_with(said).unwrap();
        assert_eq!((own.family.as_str(), own.modality.as_str()), ("mine", "scan"));
        assert_eq!([Dtype::F32, Dtype::F16].map(|dtype| own.tolerance.of(dtype)), [Some(1e-4), Some(0.5)]);
    }

    #[test]
    fn what_a_graph_says_is_refused_for_weights_and_an_architecture_for_a_graph() {
        for (key, before, after) in
            [("dimensions", "", "[dimensions]\nn = 3"), ("inputs", "inputs = []", ""), ("outputs", "outputs = []", "")]
        {
            let error =
                format!("{:#}", weights_with(&format!("{before}\narchitecture = 'digits'\n{after}")).unwrap_err());
            assert!(error.contains(&format!("unknown field `{key}`")) && error.contains("own.toml"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("net.onnx");
        std::fs::write(&graph, "").unwrap();
        std::fs::write(graph.with_extension("toml"), "architecture = 'digits'").unwrap();
        let error = format!("{:#}", read_files("net", "original", &files_of(&graph), &[]).unwrap_err());
        assert!(error.contains("unknown field `architecture`"), "{error}");
    }

    #[test]
    fn tensors_beside_a_graph_with_a_toml_file_are_no_weights() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("net.safetensors");
        for file in [weights.clone(), weights.with_extension("toml")] {
            std::fs::write(file, "").unwrap();
        }
        assert!(is_weights_with_toml(&weights));
        std::fs::write(weights.with_extension("onnx"), "").unwrap();
        assert!(!is_weights_with_toml(&weights));
    }

    #[test]
    fn the_file_that_is_named_is_among_those_that_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["net.onnx", "net.pt", "net.safetensors", "net.pth", "net.toml"];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        let files = |named: &str| {
            let files = files_of(&folder.path().join(named));
            files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(files("net.pt"), ["net.pt", "net.onnx", "net.toml"]);
        assert_eq!(files("net.safetensors"), ["net.safetensors", "net.toml"]);
    }

    #[test]
    fn an_input_that_is_said_whole_has_random_numbers_and_a_mask_stays_one() {
        let [state, mask] = ["state:f32[batch,8]=0", "mask:i64[batch,n]=1"].map(|text| text.parse().unwrap());
        let mut model = Model::of_tensors("net", vec![state, mask], Vec::new());
        let inputs = ["state:f32[batch,8]", "mask:i64[batch,16]"].map(str::to_owned).to_vec();
        apply_table(&mut model, &SuiteModel { inputs, ..SuiteModel::default() }).unwrap();
        let texts: Vec<String> = model.inputs.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["state:f32[batch,8]", "mask:i64[batch,16]=1"]);
        // Its batch is another one than that of the model's TOML file.
        let [state, mask] = ["state:f32[4,8]", "mask:i64[4,16]"].map(|text| text.parse().unwrap());
        let mut model = model.with_inputs(vec![state, mask]);
        let inputs = ["state:f32[2,8]", "mask:i64[2,16]"].map(str::to_owned).to_vec();
        apply_table(&mut model, &SuiteModel { inputs, ..SuiteModel::default() }).unwrap();
        assert_eq!(model.fixed_batch(), Some(2));
    }
}
