//! Makes the cases of a run from a suite and the catalogue, with a reason for each case that cannot run here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use indexmap::IndexMap;

use super::arguments::Selection;
use crate::catalogue::{ALL, Entry, Place, find_name, is_chosen, is_model_file, is_named, table_of};
use crate::definition::{
    AUTO, BATCH, Boundary, Case, CaseFailure, DataSource, Dims, Dtype, Generation, Model, Origin, PREFERRED, Phase,
    Status, Suite, SuiteModel, TimedOn, TokenTests, own_dtype,
};
use crate::texts::Texts;

/// What the plan needs to know about the backends. The registry of backends implements it.
pub trait Capabilities {
    /// Checks that the backend is in this build and the device on this machine.
    ///
    /// # Errors
    /// `unavailable`, with the reason.
    fn check_device(&self, backend: &str, device: &str) -> Result<(), CaseFailure>;
    /// Checks that the backend has an artifact of the model in this dtype.
    ///
    /// # Errors
    /// `unsupported`, with the reason.
    fn check_model(&self, backend: &str, model: &Model, dtype: Dtype) -> Result<(), CaseFailure>;
}

/// A case, and whether it can run.
#[derive(Clone, Debug)]
pub struct PlannedCase {
    pub case: Case,
    /// The model's definition, or why there is none.
    pub definition: Result<Model, String>,
    /// The model, or why the case cannot run.
    pub model: Result<Model, CaseFailure>,
}

/// The cases of a suite in the order: model, kind of inputs, sequence length, phase, batch size, boundary, backend, device, dtype.
///
/// # Errors
/// A model or variant does not exist, two models have the same id, a size or flag suits no model, all named files are
/// unreadable, samples are to be timed and no model has any, or no case is left.
pub fn plan(
    suite: &Suite,
    selection: &Selection,
    catalogue: &[Entry],
    capabilities: &dyn Capabilities,
) -> Result<Vec<PlannedCase>> {
    let chosen = chosen_entries(suite, selection, catalogue)?;
    check_files(&chosen, selection)?;
    let mut cases = Vec::new();
    let mut taken: BTreeMap<String, Case> = BTreeMap::new();
    // Why the first model without samples has none, and whether any model has some.
    let (mut without_samples, mut has_samples) = (None, false);
    let mut makes_tokens = false;
    for Chosen { entry, backends, phases, batch_sizes, sequence_lengths, asked_lengths } in chosen {
        let devices = product(backends, &suite.devices);
        let devices: Vec<_> =
            devices.map(|(backend, device)| (backend, resolved(backend, device, capabilities))).collect();
        let of_file = entry.model.as_ref().map_or(Dtype::F32, |model| model.dtype);
        let usual = |backend: &str, device: &str| match &entry.model {
            Ok(model) if of_file != Dtype::F32 => {
                let mut own = model.own_dtypes().iter().copied();
                own.find(|dtype| capabilities.check_model(backend, model, *dtype).is_ok()).unwrap_or(of_file)
            }
            _ => own_dtype(device),
        };
        let dtypes = |(backend, device): &(&String, String)| match suite.dtypes.as_slice() {
            [] => vec![usual(backend, device)],
            asked => asked.to_vec(),
        };
        let targets = devices.iter().flat_map(|it| dtypes(it).into_iter().map(move |dtype| (it, dtype)));
        let targets: Vec<_> = targets.collect();
        for timed_on in [TimedOn::Seeded, TimedOn::Samples] {
            let boundaries: Vec<Boundary> =
                suite.boundaries.iter().copied().filter(|it| suite.inputs_of(*it) == timed_on).collect();
            if boundaries.is_empty() {
                continue;
            }
            let (lengths, model) = match (&entry.model, timed_on) {
                (Ok(model), TimedOn::Samples) => {
                    match with_lengths_of_samples(model, &boundaries, &sequence_lengths, asked_lengths.as_deref()) {
                        Ok((lengths, model)) => {
                            has_samples = true;
                            (lengths, Ok(model))
                        }
                        Err(failure) => {
                            without_samples.get_or_insert_with(|| failure.message.clone());
                            (vec![None], Err(failure))
                        }
                    }
                }
                (model, _) => (sequence_lengths.clone(), model.clone()),
            };
            let with_tests = entry.model.as_ref().is_ok_and(|own| own.generation.is_some() && own.has_sequence());
            makes_tokens |= with_tests || entry.model.is_err();
            let with_tests = with_tests && timed_on == TimedOn::Seeded && !suite.tokens.is_empty();
            let tests = if with_tests { suite.tokens.clone() } else { TokenTests::default() };
            let (model, lengths_and_phases) = match with_tests {
                true => (model.map(|own| with_new_tokens(own, tests.tg)), tests.cases()),
                false => (model, product(&lengths, &phases).map(|(length, phase)| (*length, *phase)).collect()),
            };
            for (&(sequence_length, phase), &batch_size) in product(&lengths_and_phases, &batch_sizes) {
                for (&boundary, &((backend, device), dtype)) in product(&boundaries, &targets) {
                    let case = Case {
                        model: entry.name.clone(),
                        variant: entry.variant.clone(),
                        phase,
                        dims: entry.dims.clone(),
                        sequence_length,
                        backend: backend.to_string(),
                        device: device.clone(),
                        dtype,
                        batch_size,
                        boundary,
                        timed_on,
                    };
                    if let Some(other) = taken.insert(case.to_string(), case.clone()) {
                        let [one, other] = [&case, &other].map(|case| format!("{} {}", case.model, case.variant));
                        ensure!(one == other, "{one} and {other} have the same id {case}");
                        // A number was given twice, or `auto` stands for a device that is named too.
                        continue;
                    }
                    let runnable = runnable_model(&case, &model, capabilities).and_then(|model| {
                        tests.check_positions(model, &case)?;
                        Ok(model.clone())
                    });
                    let definition = entry.model.as_ref().map_err(|failure| failure.message.clone());
                    let definition = definition.map(|own| model.as_ref().unwrap_or(own).clone());
                    cases.push(PlannedCase { case, definition, model: runnable });
                }
            }
        }
    }
    if let Some(why) = without_samples.filter(|_| !has_samples) {
        bail!("samples are to be timed: {why}");
    }
    ensure!(!cases.is_empty(), "the suite and the filters leave no case");
    let are_said = !selection.pp.is_empty() || selection.tg.is_some();
    ensure!(makes_tokens || !are_said, "`--pp`, `--tg` and `--depth` are for language models, and there is none");
    let may_have_sequence = |it: &PlannedCase| it.case.sequence_length.is_some() || it.definition.is_err();
    ensure!(
        selection.seq_lens.is_empty() || cases.iter().any(may_have_sequence),
        "`--seq-lens` is for models that leave a size called `sequence` open, and there is none: `--dim NAME=SIZE` sets sizes of \
         other names, and a reference sets those of its inputs"
    );
    check_sizes(suite, &cases)?;
    Ok(cases)
}

/// # Errors
/// Every chosen model is a file of the command line that cannot be read; the message has a line for each.
fn check_files(chosen: &[Chosen<'_>], selection: &Selection) -> Result<()> {
    let unreadable = |chosen: &Chosen<'_>| {
        let failure = chosen.entry.model.as_ref().err()?;
        (failure.status == Status::Failed && chosen.entry.place == Place::Suite).then(|| failure.message.clone())
    };
    let are_named = !selection.files.is_empty() || !selection.path.is_empty();
    match chosen.iter().map(unreadable).collect::<Option<Vec<String>>>() {
        Some(lines) if are_named && !lines.is_empty() => bail!("{}", lines.join("\n")),
        _ => Ok(()),
    }
}

/// # Errors
/// The suite or a flag sets a size that no model leaves open; the message has the inputs of the last model.
fn check_sizes(suite: &Suite, cases: &[PlannedCase]) -> Result<()> {
    let models = || cases.iter().filter_map(|planned| planned.definition.as_ref().ok());
    let is_known = |name: &String| {
        name == BATCH && models().any(|model| model.fixed_batch().is_some())
            || cases.iter().any(|planned| planned.case.dims.0.contains_key(name))
    };
    let Some((unknown, model)) = suite.dims.names().find(|name| !is_known(name)).zip(models().next_back()) else {
        return Ok(());
    };
    let inputs: Vec<String> = model.inputs.iter().map(ToString::to_string).collect();
    bail!(
        "no model leaves the size {unknown:?} open to `--dim`; the inputs of {} are {}; `--batch-sizes` and `--seq-lens` set \
         the batch and the sequence",
        model.name,
        inputs.join(" ")
    )
}

fn product<'a, A, B>(first: &'a [A], second: &'a [B]) -> impl Iterator<Item = (&'a A, &'a B)> {
    first.iter().flat_map(|a| second.iter().map(move |b| (a, b)))
}

/// The same model with `count` new tokens after a prompt, if that is given.
fn with_new_tokens(model: Model, count: Option<usize>) -> Model {
    let generation = model.generation.map(|own| Generation { new_tokens: count.or(own.new_tokens), ..own });
    Model { generation, ..model }
}

/// The device that `auto` stands for. Other devices are returned as they are.
fn resolved(backend: &str, device: &str, capabilities: &dyn Capabilities) -> String {
    if device != AUTO {
        return device.to_owned();
    }
    let is_there = |device: &&&str| capabilities.check_device(backend, device).is_ok();
    PREFERRED.iter().find(is_there).copied().unwrap_or("cpu").to_owned()
}

/// The sequence lengths of the cases that time a model's samples, and the model with these lengths. They are `usual`,
/// except for texts, which are sorted into the lengths in `asked`, or by default into lengths that suit them.
///
/// # Errors
/// `unsupported`: the model has no samples, or none that can be timed like this. `failed`: its texts cannot be read.
fn with_lengths_of_samples(
    model: &Model,
    boundaries: &[Boundary],
    usual: &[Option<usize>],
    asked: Option<&[usize]>,
) -> Result<(Vec<Option<usize>>, Model), CaseFailure> {
    let name = &model.name;
    match &model.data_source {
        DataSource::Synthetic => Err(CaseFailure::unsupported(format!(
            "{name} has no samples: `--data-source image-folder:FOLDER` gives some to a model whose only input is an image, \
             `--text FILE` to one that takes tokens and gives no new ones, and `--data-source recorded:FILE.safetensors` to any"
        ))),
        DataSource::Recorded(_) if boundaries.contains(&Boundary::Pipeline) => Err(CaseFailure::unsupported(format!(
            "{name} has tensors as samples, and a pipeline begins with images or texts: `--data-source image-folder:FOLDER` or \
             `--text FILE` gives it some, if it takes them"
        ))),
        DataSource::Recorded(_) | DataSource::ImageFolder(_) => Ok((usual.to_vec(), model.clone())),
        DataSource::Text(_) if model.prompt_input().is_some() => Err(CaseFailure::unsupported(format!(
            "{name} makes tokens: texts are for its perplexity, and cannot be timed"
        ))),
        DataSource::Text(path) => {
            let model = model.clone().with_texts_as_sequence();
            if !model.has_sequence() {
                return Ok((vec![None], model));
            }
            let texts = Texts::open(path, &model, None).and_then(|texts| texts.buckets(asked));
            let sequence_lengths = texts.map_err(|why| CaseFailure::failed(format!("{why:#}")))?;
            Ok((sequence_lengths.iter().copied().map(Some).collect(), Model { sequence_lengths, ..model }))
        }
    }
}

fn runnable_model<'a>(
    case: &Case,
    model: &'a Result<Model, CaseFailure>,
    capabilities: &dyn Capabilities,
) -> Result<&'a Model, CaseFailure> {
    let model = model.as_ref().map_err(CaseFailure::clone)?;
    case.check_id().map_err(|error| CaseFailure::failed(error.to_string()))?;
    if let Err(absent) = capabilities.check_device(&case.backend, &case.device) {
        // A runtime that reads no such files need not be installed.
        let reads = if model.is_gguf() { capabilities.check_model(&case.backend, model, case.dtype) } else { Ok(()) };
        return Err(reads.err().filter(|it| it.status == Status::Unsupported).unwrap_or(absent));
    }
    if model.dtype != Dtype::F32 && !model.own_dtypes().contains(&case.dtype) {
        return Err(CaseFailure::unsupported(format!(
            "its weights are of {}, and only files of f32 are converted to other dtypes: leave out `--dtype` and the suite's `dtypes`",
            model.dtype
        )));
    }
    capabilities.check_model(&case.backend, model, case.dtype)?;
    let is_open = model.has_sequence() && case.sequence_length.is_none();
    if is_open && matches!(model.origin, Origin::Packaged { .. }) {
        return Err(CaseFailure::failed(
            "the model needs a sequence length: give `seq_lens` in the suite, or `--seq-lens`",
        ));
    }
    Ok(model)
}

/// An entry of the catalogue, and the sizes of its cases.
struct Chosen<'a> {
    entry: &'a Entry,
    backends: &'a [String],
    phases: Vec<Phase>,
    batch_sizes: Vec<usize>,
    /// `None` alone for a model without a sequence dimension.
    sequence_lengths: Vec<Option<usize>>,
    /// The lengths that the suite or a flag sets.
    asked_lengths: Option<Vec<usize>>,
}

impl<'a> Chosen<'a> {
    fn new(entry: &'a Entry, suite: &'a Suite, own: Option<&'a SuiteModel>) -> Self {
        let backends = own.and_then(|own| own.backends.as_ref()).unwrap_or(&suite.backends);
        let asked = own.and_then(|own| own.phases.as_ref()).or(suite.phases.as_ref());
        let is_asked_for = |phase: &Phase| asked.is_none_or(|phases| phases.contains(phase));
        let phases = match &entry.model {
            Ok(model) => model.phases.iter().map(|plan| plan.phase).filter(is_asked_for).collect(),
            Err(_) => vec![Phase::Forward],
        };
        let batch_sizes = own.and_then(|own| own.batch_sizes.as_ref()).unwrap_or(&suite.batch_sizes);
        let fixed = entry.model.as_ref().ok().and_then(Model::fixed_batch);
        let batch_sizes = fixed.map_or_else(|| batch_sizes.clone(), |fixed| vec![fixed]);
        let asked = own.and_then(|own| own.seq_lens.as_ref()).or(suite.seq_lens.as_ref());
        let model = entry.model.as_ref().ok().filter(|model| model.has_sequence());
        let lengths = model.map(|model| asked.unwrap_or(&model.sequence_lengths)).filter(|lengths| !lengths.is_empty());
        let sequence_lengths =
            lengths.map_or_else(|| vec![None], |lengths| lengths.iter().copied().map(Some).collect());
        Chosen { entry, backends, phases, batch_sizes, sequence_lengths, asked_lengths: asked.cloned() }
    }
}

fn chosen_entries<'a>(suite: &'a Suite, selection: &Selection, catalogue: &'a [Entry]) -> Result<Vec<Chosen<'a>>> {
    let of_model = |name: &str| -> Result<Vec<&'a Entry>> {
        let entries: Vec<&Entry> = catalogue.iter().filter(|entry| entry.name == name).collect();
        ensure!(!entries.is_empty(), unknown_model(name, catalogue));
        Ok(entries)
    };
    let asked_models: Vec<&str> =
        selection.model.iter().map(|name| find_name(name, catalogue).unwrap_or(name)).collect();
    let asked_variants = (!selection.variant.is_empty()).then_some(selection.variant.as_slice());
    let mut chosen: IndexMap<(&str, &str, &Dims), Chosen<'a>> = IndexMap::new();
    for model in &suite.models {
        let entries = of_model(&model.name)?;
        check_variants(model.variants.as_deref().unwrap_or_default(), &entries)?;
        let asked = asked_variants.or(model.variants.as_deref());
        for entry in entries.into_iter().filter(|entry| is_chosen(entry, asked)) {
            let sizes = Chosen::new(entry, suite, table_of(suite, entry)?);
            chosen.entry((&entry.name, &entry.variant, &entry.dims)).or_insert(sizes);
        }
    }
    // A model that is asked for by name runs even if the suite does not list it.
    let is_listed = |name: &str| suite.models.iter().any(|model| model.name == name);
    let is_added = |name: &str| asked_models.contains(&name) && !is_listed(name);
    for entry in catalogue {
        if (is_added(&entry.name) && is_chosen(entry, asked_variants))
            || (suite.include_found && entry.place == Place::Folder && is_named(&entry.variant, asked_variants))
        {
            let key = (&*entry.name, &*entry.variant, &entry.dims);
            chosen.entry(key).or_insert_with(|| Chosen::new(entry, suite, None));
        }
    }
    if chosen.is_empty() && asked_models.is_empty() {
        suite.models.iter().try_for_each(|model| check_variants(&selection.variant, &of_model(&model.name)?))?;
    }
    let is_there = |name: &&String| **name == ALL || chosen.keys().any(|(_, variant, _)| *variant == name.as_str());
    if let Some(name) = selection.variant.iter().find(|name| !chosen.is_empty() && !is_there(name)) {
        bail!("none of the models has the variant {name:?}");
    }
    for name in &asked_models {
        check_variants(&selection.variant, &of_model(name)?)?;
    }
    // `run folder --model net` chooses among the files. If none of them has the name, the named model runs beside them.
    let files: Vec<&str> = suite.models.iter().filter(|model| model.stands_alone).map(|model| &*model.name).collect();
    let is_among_files = asked_models.iter().any(|name| files.contains(name));
    let is_asked = |name: &str| asked_models.contains(&name) || (!is_among_files && files.contains(&name));
    chosen.retain(|(name, ..), _| asked_models.is_empty() || is_asked(name));
    Ok(chosen.into_values().collect())
}

/// # Errors
/// The model has no variant of that name; the message lists those that it has.
fn check_variants(asked: &[String], of_model: &[&Entry]) -> Result<()> {
    let is_known = |name: &String| name == ALL || of_model.iter().any(|entry| entry.variant == *name);
    match (asked.iter().find(|name| !is_known(name)), of_model.first()) {
        (Some(name), Some(entry)) => {
            let known: Vec<&str> = of_model.iter().map(|entry| entry.variant.as_str()).collect();
            let meant = known.iter().find(|own| own.eq_ignore_ascii_case(name));
            let meant = meant.map(|own| format!(" (did you mean {own}?)")).unwrap_or_default();
            bail!("{} has no variant {name:?}{meant}; there are {}, or `{ALL}`", entry.name, known.join(", "))
        }
        _ => Ok(()),
    }
}

fn unknown_model(name: &str, catalogue: &[Entry]) -> String {
    let file = Path::new(name);
    if is_model_file(file) && !file.exists() {
        return format!("there is no file {name:?}, and no model of that name");
    }
    let names: BTreeSet<&str> = catalogue.iter().map(|entry| entry.name.as_str()).collect();
    let alike = names.iter().map(|other| (strsim::jaro_winkler(name, other), other));
    let nearest = alike.filter(|(likeness, _)| *likeness > 0.85).max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = nearest.map(|(_, other)| format!(" (did you mean {other}?)")).unwrap_or_default();
    format!("no model {name:?}{meant}; there are {}", names.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
