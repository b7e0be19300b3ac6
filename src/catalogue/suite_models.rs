//! Puts the models of a suite into the catalogue (files and weights of users, and the sources of samples), and finds the table
//! `[[models]]` of the suite that says how an entry of the catalogue is run.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::entries::{Entry, Place, add_derived, failed, find_name, originals};
use super::inherited::inherit_inputs;
use super::user_files::{MODEL_TOML, apply_table, check_model_file, files_of, names_of, read_files};
use crate::definition::{
    BATCH, CaseFailure, Dims, Model, ORIGINAL, Origin, SEQUENCE, Suite, SuiteModel, TensorSpec, check_component,
    usable_name, with_dimensions,
};
use crate::onnx;

/// Puts the models of a suite into the catalogue: files and weights of users, and the sources of samples. Names in the
/// suite are replaced by those of the catalogue, as [`find_name`] finds them.
///
/// # Errors
/// A name is taken, a file does not exist or is of an unknown kind, weights are given to a model that is not packaged,
/// a table names an input or size that the model does not have, or two tables give one model different settings.
pub fn add_models_of_suite(catalogue: &mut Vec<Entry>, suite: &mut Suite) -> Result<()> {
    for table in suite.models.iter().filter(|table| table.is_of_code) {
        let entry = model_of_code(table)?;
        ensure!(
            !catalogue.iter().any(|other| other.name == entry.name),
            "model {:?} has the name of another model: give it another one",
            entry.name
        );
        catalogue.push(entry);
    }
    for model in suite.models.iter_mut().filter(|model| model.path.is_none()) {
        match find_name(&model.name, catalogue) {
            Some(name) => model.name = name.to_owned(),
            None if suite.allows_unknown_models => {
                let entry = unavailable(&model.name, catalogue);
                model.name.clone_from(&entry.name);
                catalogue.push(entry);
            }
            // The plan refuses it, and lists the known names.
            None => {}
        }
    }
    add_models_with_paths(catalogue, suite)?;
    for SuiteModel { name, weights, .. } in &suite.models {
        if let Some(weights) = weights {
            put_weights(catalogue, name, weights).with_context(|| format!("model {name:?}"))?;
        }
    }
    let entries = std::mem::take(catalogue);
    for entry in entries {
        catalogue.extend(of_each_size(entry, suite)?);
    }
    for entry in catalogue {
        let own = table_of(suite, entry)?;
        let Ok(model) = &mut entry.model else { continue };
        model.judge = own.and_then(|table| table.judge).or(model.judge);
        let of_suite = suite.data_source.as_ref().filter(|source| source.is_for(model));
        if let Some(source) = own.and_then(|table| table.data_source.as_ref()).or(of_suite) {
            model.data_source = source.clone();
        }
    }
    Ok(())
}

/// An entry for each of the sizes that the suite gives to the open dimensions of the entry's model.
///
/// # Errors
/// The table of the entry names a size that the model does not leave open, or two lists of sizes are of different lengths.
fn of_each_size(entry: Entry, suite: &Suite) -> Result<Vec<Entry>> {
    let of_table = table_of(suite, &entry)?.map(|table| &table.dims);
    let sweep = of_table.map_or_else(|| suite.dims.clone(), |own| suite.dims.with(own));
    let Some(model) = entry.model.as_ref().ok().filter(|_| !sweep.is_empty()) else { return Ok(vec![entry]) };
    let open = open_inputs(model);
    let sized = |dims: &BTreeMap<String, usize>| with_dimensions(open.clone(), dims);
    // The batch and the sequence of packaged models have flags and references of their own.
    let is_own = |name: &str| matches!(model.origin, Origin::Packaged { .. }) && [BATCH, SEQUENCE].contains(&name);
    let is_known = |name: &str| !is_own(name) && sized(&BTreeMap::from([(name.to_owned(), 1)])) != open;
    if let Some(unknown) = of_table.and_then(|own| own.names().find(|name| !is_known(name))) {
        bail!("model {:?} has no open size {unknown:?}; the inputs are {}", entry.name, texts(&open));
    }
    let of_step = |mut dims: Dims| {
        let mut inputs = sized(&dims.0);
        // A packaged model has its own sizes where none is asked for.
        let own = model.inputs.iter().flat_map(|input| &input.shape);
        for (asked, own) in inputs.iter_mut().flat_map(|input| &mut input.shape).zip(own) {
            if asked.fixed().is_none() && own.fixed().is_some() {
                asked.clone_from(own);
            }
        }
        let mut sized = model.clone();
        if let Origin::Packaged { has_reference, .. } = &mut sized.origin {
            *has_reference &= inputs == model.inputs;
        }
        dims.0.remove(BATCH);
        Entry { dims, model: Ok(sized.with_inputs(inputs)), ..entry.clone() }
    };
    let steps = sweep.steps(is_known)?;
    let without_batch = |step: &Dims| {
        let mut others = step.clone();
        others.0.remove(BATCH);
        others
    };
    let is_lost = |step: &Dims| steps.iter().any(|other| other != step && without_batch(other) == without_batch(step));
    ensure!(
        !steps.iter().any(is_lost),
        "the sizes of `--dim` differ only in the batch: `--batch-sizes` measures several"
    );
    Ok(steps.into_iter().map(of_step).collect())
}

/// The inputs, with every size open that may differ from the definition: for a packaged model, the sizes that its graph
/// leaves open.
fn open_inputs(model: &Model) -> Vec<TensorSpec> {
    let mut inputs = model.inputs.clone();
    let [part] = model.parts.as_slice() else { return inputs };
    let is_packaged = matches!(model.origin, Origin::Packaged { .. });
    let Some(graph) = model.onnx_file(part).filter(|_| is_packaged) else { return inputs };
    let of_graph = onnx::read_summary(&graph).map(|summary| summary.inputs).unwrap_or_default();
    for input in &mut inputs {
        let Some(own) = of_graph.iter().find(|own| own.name == input.name) else { continue };
        for (size, open) in input.shape.iter_mut().zip(&own.shape).filter(|(_, open)| open.fixed().is_none()) {
            *size = open.clone();
        }
    }
    inputs
}

fn texts(inputs: &[TensorSpec]) -> String {
    inputs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The entry of a model without a file: its name, inputs and outputs.
///
/// # Errors
/// The name cannot be part of an id, or an input or output is not written as `x:f32[batch,64]`.
fn model_of_code(table: &SuiteModel) -> Result<Entry> {
    let SuiteModel { name, inputs, outputs, reference, family, modality, .. } = table;
    let of_model = || format!("model {name:?}");
    check_component(name).with_context(of_model)?;
    let specs = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<TensorSpec>>>();
    let inputs = specs(inputs).with_context(of_model)?;
    let model = Model {
        family: family.clone().unwrap_or_else(|| name.clone()),
        modality: modality.clone().unwrap_or_else(|| "unknown".into()),
        origin: Origin::Files { onnx: None, torchscript: None, reference: reference.clone(), quantization: None },
        ..Model::of_tensors(name, inputs, specs(outputs).with_context(of_model)?)
    };
    Ok(Entry::new(name.clone(), ORIGINAL.into(), Place::Suite, Ok(model)))
}

/// An entry for a model that does not exist here.
fn unavailable(written: &str, catalogue: &[Entry]) -> Entry {
    let reason = format!(
        "{written:?} is not among the packaged models ({}); export it and give its file as `path`",
        names_of(&originals(catalogue))
    );
    Entry::new(usable_name(written), ORIGINAL.into(), Place::Suite, Err(CaseFailure::unavailable(reason)))
}

/// Replaces the weights of a packaged model by those of a file.
fn put_weights(catalogue: &mut Vec<Entry>, name: &str, weights: &Path) -> Result<()> {
    ensure!(weights.is_file(), "there is no file {}", weights.display());
    let is_packaged = |entry: &Entry| entry.name == name && entry.place == Place::Zoo;
    ensure!(
        catalogue.iter().any(is_packaged),
        "`weights` are for a packaged model, whose graph is known: one of {}",
        names_of(&originals(catalogue))
    );
    // Variants that exist only for the model's own weights are removed.
    catalogue.retain_mut(|entry| match &mut entry.model {
        Ok(model) if entry.name == name && matches!(entry.place, Place::Zoo | Place::Derived) => {
            let changed = model.with_weights(weights);
            changed.map(|changed| *model = changed).is_some()
        }
        _ => true,
    });
    Ok(())
}

fn add_models_with_paths(catalogue: &mut Vec<Entry>, suite: &mut Suite) -> Result<()> {
    let packaged = originals(catalogue);
    // The inputs in tables that no file has, and the inputs of the last model.
    let (mut unknown, mut inputs): (Option<Vec<String>>, _) = (None, String::new());
    for table in &mut suite.models {
        if table.is_named_by_file && catalogue.iter().any(|entry| entry.name == table.name && entry.place == Place::Zoo)
        {
            table.name = format!("my-{}", table.name);
        }
        let SuiteModel { name, variant, path, family, modality, .. } = &*table;
        let Some(path) = path else { continue };
        let variant = variant.as_deref().unwrap_or(ORIGINAL);
        let check = || {
            ensure!(path.is_file(), "there is no file {}", path.display());
            check_model_file(path)
        };
        check().with_context(|| format!("model {name:?}"))?;
        catalogue.retain(|entry| entry.name != *name || entry.place != Place::Derived);
        let is_taken = |entry: &Entry| entry.name == *name && (entry.place != Place::Suite || entry.variant == variant);
        // The same file in a folder of `models/` is the same model.
        catalogue.retain(|entry| !(entry.name == *name && entry.variant == variant && is_of_file(entry, path)));
        ensure!(
            !catalogue.iter().any(is_taken),
            "model {name:?} {variant} has the name of another model: give it another one, as in `--path NAME={}`, or by another \
             `name` or `variant` in the suite",
            path.display()
        );
        let mut model = read_files(name, variant, &files_of(path), &packaged);
        if let Ok(model) = &mut model {
            model.family = family.clone().unwrap_or_else(|| model.family.clone());
            model.modality = modality.clone().unwrap_or_else(|| model.modality.clone());
            let first = catalogue.iter().find(|entry| entry.name == *name && entry.variant == ORIGINAL);
            if let Some(Entry { model: Ok(first), place: Place::Suite, .. }) = first {
                inherit_inputs(model, first);
            }
            let own = apply_table(model, table).with_context(|| format!("model {name:?}"))?;
            unknown = Some(own.into_iter().filter(|it| unknown.as_ref().is_none_or(|all| all.contains(it))).collect());
            inputs = texts(&model.inputs);
        }
        let model = model.map_err(failed);
        catalogue.push(Entry::new(name.clone(), variant.into(), Place::Suite, model));
    }
    add_derived(catalogue);
    match unknown.as_deref() {
        Some([first, ..]) => bail!("no file has an {first}; the inputs are {inputs}"),
        _ => Ok(()),
    }
}

/// Whether the entry is of this file, which a suite names and which lies in a folder of `models/`.
fn is_of_file(entry: &Entry, path: &Path) -> bool {
    let Ok(model) = &entry.model else { return false };
    let is_same = |file: &Path| file.canonicalize().is_ok_and(|file| path.canonicalize().ok() == Some(file));
    let is_its_own = || match &model.origin {
        Origin::Packaged { folder, .. } => is_same(&folder.join(MODEL_TOML)),
        origin => origin.files().any(|file| is_same(file)),
    };
    entry.place == Place::Folder && is_its_own()
}

/// The word for all variants of a model.
pub const ALL: &str = "all";

/// Whether the asked variants include this one. Without a list, all are included.
pub fn is_named(variant: &str, asked: Option<&[String]>) -> bool {
    asked.is_none_or(|names| names.iter().any(|name| name == variant || name == ALL))
}

/// Whether an entry runs. Without a list of variants, the originals and all files of users do. Weights in blocks are
/// for language models; those of other networks run only if they are asked for by name, and not by `all`.
pub fn is_chosen(entry: &Entry, asked: Option<&[String]>) -> bool {
    let is_default = entry.variant == ORIGINAL || matches!(entry.place, Place::Folder | Place::Suite);
    let is_special = entry.model.as_ref().is_ok_and(|model| model.blocks().is_some() && model.generation.is_none());
    match asked {
        None => is_default,
        Some(names) if is_special => names.contains(&entry.variant),
        Some(_) => is_named(&entry.variant, asked),
    }
}

/// The table with the settings of an entry: that of its file, or one that chooses it. If only a flag has chosen the
/// entry, it is the table of the file that the entry is made from, or the table of the model, if its tables agree.
///
/// # Errors
/// Two tables choose it with different settings.
pub fn table_of<'a>(suite: &'a Suite, entry: &Entry) -> Result<Option<&'a SuiteModel>> {
    let of_model = || suite.models.iter().filter(|table| table.name == entry.name);
    let own: Vec<&SuiteModel> = of_model().filter(|table| is_of(table, entry)).collect();
    let is_chosen_by_flag = own.is_empty();
    let is_of_file =
        |table: &&SuiteModel| table.path.is_some() && table.variant.as_deref().unwrap_or(ORIGINAL) == ORIGINAL;
    let tables = match of_model().find(is_of_file) {
        _ if !is_chosen_by_flag => own,
        Some(of_file) => vec![of_file],
        None => of_model().collect(),
    };
    let settings = |it: &'a SuiteModel| {
        (&it.batch_sizes, &it.phases, &it.dims, &it.seq_lens, &it.data_source, it.judge, &it.backends)
    };
    let agree = tables.windows(2).all(|pair| settings(pair[0]) == settings(pair[1]));
    ensure!(
        agree || is_chosen_by_flag,
        "two tables of the suite give {} {} different batch sizes, phases, sizes, sequence lengths, samples, judges or backends, and it runs \
         once: put them into one table, or let each table have other `variants`",
        entry.name,
        entry.variant
    );
    Ok(tables.first().copied().filter(|_| agree))
}

fn is_of(table: &SuiteModel, entry: &Entry) -> bool {
    match table.path {
        Some(_) => table.variant.as_deref().unwrap_or(ORIGINAL) == entry.variant,
        None => is_chosen(entry, table.variants.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::entries::read_catalogue;
    use super::*;
    use crate::definition::{DataSource, Judge};

    #[test]
    fn a_packaged_model_has_the_sizes_that_its_graph_leaves_open() {
        let sized = |name: &str, dims: &str| {
            let mut catalogue = read_catalogue(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
            let models = vec![SuiteModel::from(name)];
            let mut suite = Suite { models, dims: dims.parse().unwrap(), ..Suite::new("own", vec!["ort".into()]) };
            add_models_of_suite(&mut catalogue, &mut suite).unwrap();
            let own = catalogue.into_iter().filter(|entry| (&*entry.name, &*entry.variant) == (name, ORIGINAL));
            let told = |entry: Entry| {
                let model = entry.model.unwrap();
                format!("{} {} {}", entry.dims, texts(&model.inputs), model.has_reference())
            };
            own.map(told).collect::<Vec<_>>()
        };
        let of_each = sized("resnet50", "height=64,224,width=32,224");
        let expected = [
            "height=64,width=32 input:f32[batch,3,64,32] false",
            "height=224,width=224 input:f32[batch,3,224,224] true",
        ];
        assert_eq!(of_each, expected);
        assert_eq!(sized("resnet50", "height=64"), ["height=64 input:f32[batch,3,64,224] false"]);
        // Its embeddings of places are for one size, and a length has a flag of its own.
        assert_eq!(sized("vit-small", "height=32"), [" pixel_values:f32[batch,3,64,64] true"]);
        assert!(sized("bert-small", "sequence=32")[0].starts_with(" input_ids:i64[batch,sequence]"));
    }

    #[test]
    fn weights_of_a_file_reach_every_variant_that_is_made_from_them() {
        let mut catalogue = read_catalogue(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.safetensors");
        std::fs::write(&file, "").unwrap();
        let table = SuiteModel { weights: Some(file.clone()), ..SuiteModel::from("llama-small") };
        let mut suite = Suite { models: vec![table], ..Suite::new("own", vec!["ort".into()]) };
        add_models_of_suite(&mut catalogue, &mut suite).unwrap();
        let own: Vec<&Entry> = catalogue.iter().filter(|entry| entry.name == "llama-small").collect();
        for variant in [ORIGINAL, "int4", "q8_0"] {
            assert!(own.iter().any(|entry| entry.variant == variant), "{variant}");
        }
        for Entry { variant, model, .. } in own {
            let model = model.as_ref().unwrap();
            assert_eq!(model.origin.files().collect::<Vec<_>>(), [&file], "{variant}");
            assert!(model.artifact_folder_name().starts_with("llama-small@own"), "{variant}");
        }
    }

    #[test]
    fn what_is_made_of_a_file_runs_as_the_table_of_the_file_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models/product.onnx");
        let samples = |name: &str| Some(DataSource::Recorded(PathBuf::from(name)));
        let table = |variant: Option<&str>, batch_size: usize, name: &str| SuiteModel {
            path: Some(path.clone()),
            variant: variant.map(str::to_owned),
            batch_sizes: Some(vec![batch_size]),
            data_source: samples(name),
            ..SuiteModel::from("mine")
        };
        let models = vec![table(Some("int8"), 2, "other.npz"), table(None, 4, "own.npz")];
        let mut suite = Suite { models, ..Suite::new("own", vec!["ort".into()]) };
        let mut catalogue = Vec::new();
        add_models_of_suite(&mut catalogue, &mut suite).unwrap();
        let of = |variant: &str| {
            let entry = catalogue.iter().find(|entry| entry.variant == variant).unwrap();
            let batch_sizes = table_of(&suite, entry).unwrap().unwrap().batch_sizes.clone();
            (batch_sizes, Some(entry.model.as_ref().unwrap().data_source.clone()))
        };
        assert_eq!(of("int8"), (Some(vec![2]), samples("other.npz")));
        for variant in [ORIGINAL, "f16", "int8-static", "int4"] {
            assert_eq!(of(variant), (Some(vec![4]), samples("own.npz")), "{variant}");
        }
    }

    #[test]
    fn a_table_names_the_judge_of_a_packaged_model_too() {
        let mut catalogue = read_catalogue(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        let table = SuiteModel { judge: Some(Judge::Embedding), ..SuiteModel::from("digits") };
        let mut suite = Suite { models: vec![table], ..Suite::new("own", vec!["ort".into()]) };
        add_models_of_suite(&mut catalogue, &mut suite).unwrap();
        let digits = catalogue.iter().find(|entry| (&*entry.name, &*entry.variant) == ("digits", ORIGINAL)).unwrap();
        assert_eq!(digits.model.as_ref().unwrap().judged_by(), Judge::Embedding);
    }
}
