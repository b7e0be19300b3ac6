//! The registry of backends: what is known of each, and which are in this build. The engines of a crate that uses this
//! one are registered when its bench executable starts.
//!
//! `CONTRIBUTING` has the steps of adding a backend.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use indexmap::IndexMap;

use super::interface::Backend;
use super::null::Null;
use super::outside::program::Program;
#[cfg(feature = "torch")]
use super::outside::torch::{Mode, Torch};
pub use crate::definition::NULL;
use crate::definition::{
    CaseFailure, Dtype, Model, backend_and_settings, backend_name, backends_in_places, check_component, with_settings,
};
use crate::fixture::{Reads, check_blocks};
use crate::paths::{Paths, variable};

/// Makes a backend with the runtime of an environment, if one is given, and with the settings in the backend's name.
type InPlace = fn(Option<&'static Path>, &'static str) -> Box<dyn Backend>;

/// A backend, whether or not this build has it.
pub struct Entry {
    /// The Rust crate that runs it, as in case ids, and its Cargo feature: `ort`.
    pub name: &'static str,
    /// The release of the crate, which is pinned in `Cargo.toml`.
    pub version: &'static str,
    /// The field's name: `onnxruntime`.
    pub framework: &'static str,
    /// Its colour in charts, on white and on black, if it is a backend of this package. After Okabe & Ito 2008, "Color
    /// universal design".
    colour: Option<[&'static str; 2]>,
    /// What `inferbench setup` gets for it, if it needs a native library.
    pub setup: Option<&'static str>,
    backend: Option<&'static dyn Backend>,
    /// Makes the backend with the runtime of one Python environment, if it can use one.
    in_place: Option<InPlace>,
}

/// A backend or its constructor, if this build has the feature.
macro_rules! with_feature {
    ($feature:literal, $backend:expr) => {{
        #[cfg(feature = $feature)]
        {
            Some($backend)
        }
        #[cfg(not(feature = $feature))]
        {
            None
        }
    }};
}

/// llama.cpp. It also computes the weights of GGUF files in f32, as the reference for other backends.
pub const LLAMA_CPP: &str = "llama-cpp";
/// ONNX Runtime.
pub const ORT: &str = "ort";

/// The backends of this package in the order of lists; the null backend is the last.
#[rustfmt::skip]
static ENTRIES: &[Entry] = &[
    Entry { name: ORT, version: "2.0.0-rc.15", framework: "onnxruntime", colour: Some(["#0072b2", "#4ba8e8"]), setup: None,
            backend: with_feature!("ort", &super::ort::Ort { place: None }),
            in_place: with_feature!("ort", |place, _| Box::new(super::ort::Ort { place }) as Box<dyn Backend>) },
    Entry { name: "tch", version: "0.24.0", framework: "pytorch", colour: Some(["#d55e00", "#f58a42"]), setup: Some("tch"),
            backend: with_feature!("tch", &super::tch::Tch), in_place: None },
    Entry { name: "candle", version: "0.11.1", framework: "candle", colour: Some(["#009e73", "#2fcf9f"]), setup: None,
            backend: with_feature!("candle", &super::candle::Candle), in_place: None },
    Entry { name: "tract", version: "0.23.9", framework: "tract", colour: Some(["#b8568f", "#e59ac6"]), setup: None,
            backend: with_feature!("tract", &super::tract::TractBackend), in_place: None },
    Entry { name: "openvino", version: "0.11.1", framework: "openvino", colour: Some(["#8a6d00", "#e8c63e"]),
            setup: Some("openvino"), backend: with_feature!("openvino", &super::openvino::OpenVino { place: None }),
            in_place: with_feature!("openvino", |place, _| Box::new(super::openvino::OpenVino { place }) as Box<dyn Backend>) },
    Entry { name: LLAMA_CPP, version: "0.5.0", framework: "llama.cpp", colour: Some(["#4c6b1a", "#a3c761"]), setup: Some("llama-cpp"),
            backend: with_feature!("llama-cpp", &super::llama_cpp::LlamaCpp), in_place: None },
    Entry { name: "jax", version: "protocol 1", framework: "jax", colour: Some(["#c2255c", "#ff8fab"]), setup: None,
            backend: with_feature!("jax", &super::outside::jax::Jax { place: None }),
            in_place: with_feature!("jax", |place, _| Box::new(super::outside::jax::Jax { place }) as Box<dyn Backend>) },
    Entry { name: "torch", version: "protocol 1", framework: "pytorch", colour: Some(["#5f3dc4", "#9775fa"]), setup: None,
            backend: with_feature!("torch", &Torch { place: None, settings: "", mode: Mode::Eager }),
            in_place: with_feature!("torch", |place, settings| Box::new(Torch { place, settings, mode: Mode::Eager }) as Box<dyn Backend>) },
    Entry { name: "torch-compile", version: "protocol 1", framework: "pytorch", colour: Some(["#862e9c", "#da77f2"]), setup: None,
            backend: with_feature!("torch-compile", &Torch { place: None, settings: "", mode: Mode::Compile }),
            in_place: with_feature!("torch-compile", |place, settings| Box::new(Torch { place, settings, mode: Mode::Compile }) as Box<dyn Backend>) },
    Entry { name: "torch-aot", version: "protocol 1", framework: "pytorch", colour: Some(["#364fc7", "#748ffc"]), setup: None,
            backend: with_feature!("torch-aot", &Torch { place: None, settings: "", mode: Mode::Aot }),
            in_place: with_feature!("torch-aot", |place, settings| Box::new(Torch { place, settings, mode: Mode::Aot }) as Box<dyn Backend>) },
    Entry { name: "ort-web", version: "protocol 1", framework: "onnxruntime-web", colour: Some(["#1b7f8c", "#6fd3de"]), setup: None,
            backend: with_feature!("ort-web", &super::outside::ort_web::OrtWeb), in_place: None },
    Entry { name: NULL, version: env!("CARGO_PKG_VERSION"), framework: NULL, colour: Some(["#6b7280", "#9ca3af"]), setup: None,
            backend: Some(&Null), in_place: None },
];

/// The engines of the crate that uses this one, in the order of their registration.
static OWN: OnceLock<Vec<Entry>> = OnceLock::new();

/// Colours of other backends, in the order of these backends.
const OWN_COLOURS: [[&str; 2]; 4] =
    [["#7a3fbf", "#b98cf0"], ["#a3402a", "#e08a74"], ["#3d6b1f", "#93c46a"], ["#00707a", "#52c0ca"]];

/// Registers engines by their names, once per process. An engine lives as long as the process.
///
/// # Errors
/// A name is taken or not allowed in ids, or engines are registered already.
pub fn register(engines: Vec<(String, Box<dyn Backend>)>) -> Result<()> {
    let mut own: Vec<Entry> = Vec::new();
    for (name, engine) in engines {
        add(&mut own, name, engine, "unversioned")?;
    }
    OWN.set(own).map_err(|_| anyhow!("the engines of a process are registered once"))
}

fn add(own: &mut Vec<Entry>, name: String, engine: Box<dyn Backend>, unversioned: &'static str) -> Result<()> {
    check_component(&name).with_context(|| format!("backend {name:?}"))?;
    let is_taken = ENTRIES.iter().chain(own.iter()).any(|entry| entry.name == name);
    let usual = backend_name(&name);
    ensure!(usual == name && !is_taken, "{name:?} is a name of the backend {usual:?}: give your engine another one");
    let (name, backend): (&str, &dyn Backend) = (name.leak(), Box::leak(engine));
    let (version, backend) = (backend.version().unwrap_or(unversioned), Some(backend));
    own.push(Entry { name, version, framework: name, colour: None, setup: None, backend, in_place: None });
    Ok(())
}

/// The variable that names external workers: `name:command`, several separated by `;`.
const WORKER: &str = "INFERBENCH_WORKER";

/// The external workers that [`WORKER`] names, or what is wrong with its value. All processes of a run inherit the
/// variable.
fn outside() -> Result<&'static [Entry], &'static str> {
    static OUTSIDE: OnceLock<Result<Vec<Entry>, String>> = OnceLock::new();
    let read = || {
        let named = variable(WORKER).unwrap_or_default().to_string_lossy().into_owned();
        let mut programs = Vec::new();
        for named in named.split(';').map(str::trim).filter(|named| !named.is_empty()) {
            let (name, command) = named
                .split_once(':')
                .filter(|(_, command)| !command.trim().is_empty())
                .with_context(|| format!("{WORKER}: {named:?} is not `name:command`, as in `mine:python3 mine.py`"))?;
            let (name, program) = (name.trim().to_owned(), Program::new(name.trim(), command.trim()));
            add(&mut programs, name, Box::new(program), "protocol 1").with_context(|| WORKER.to_owned())?;
        }
        Ok(programs)
    };
    let outside = OUTSIDE.get_or_init(|| read().map_err(|error: anyhow::Error| format!("{error:#}")));
    outside.as_deref().map_err(String::as_str)
}

/// Backends of this package with the runtimes of named environments, such as `ort@old`. All processes of a run have
/// them.
fn in_places() -> Result<&'static [Entry], &'static str> {
    static IN_PLACES: OnceLock<Result<Vec<Entry>, String>> = OnceLock::new();
    let read = || backends_in_places().into_iter().map(in_place).collect::<Result<Vec<Entry>>>();
    let in_places = IN_PLACES.get_or_init(|| read().map_err(|error| format!("{error:#}")));
    in_places.as_deref().map_err(String::as_str)
}

/// The backend of this name with the runtime of this environment.
fn in_place((name, place): (String, PathBuf)) -> Result<Entry> {
    let (base, settings) = backend_and_settings(name.split('@').next().unwrap_or_default());
    let of = ENTRIES.iter().find(|entry| entry.name == base).with_context(|| format!("no backend {base:?}"))?;
    of.backend().map_err(|failure| anyhow!("{base}: {}", failure.message))?;
    let none = || format!("{base} has no runtime in a Python environment; ort, openvino, jax and torch have one");
    let make = of.in_place.with_context(none)?;
    let place: &'static Path = Box::leak(place.into_boxed_path());
    let backend: &'static dyn Backend = Box::leak(make(Some(place), settings.to_owned().leak()));
    Ok(Entry { name: name.leak(), colour: None, setup: None, backend: Some(backend), in_place: None, ..*of })
}

/// A backend of this package with settings in its name, such as `torch-compile.max-autotune`; `None` if there is none
/// of that name. It is made at the first request.
fn with_own_settings(name: &str) -> Option<&'static Entry> {
    static MADE: Mutex<BTreeMap<String, &'static Entry>> = Mutex::new(BTreeMap::new());
    let (base, settings) = backend_and_settings(name);
    // A backend has one name, in which the settings are in alphabetical order.
    if settings.is_empty() || with_settings(base, settings).ok()??.as_str() != name {
        return None;
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = made.get(name) {
        return Some(entry);
    }
    let of = ENTRIES.iter().find(|entry| entry.name == base)?;
    let backend = of.in_place.map(|make| &*Box::leak(make(None, settings.to_owned().leak())));
    let entry = Entry { name: name.to_owned().leak(), colour: None, backend, in_place: None, ..*of };
    let entry: &'static Entry = Box::leak(Box::new(entry));
    made.insert(name.to_owned(), entry);
    Some(entry)
}

/// Checks the variables that name external workers and environments.
///
/// # Errors
/// A worker is not `name:command`, a name is taken, or a backend cannot have the runtime of an environment.
pub fn check_outside() -> Result<()> {
    outside().and(in_places()).map(drop).map_err(|why| anyhow!(why))
}

/// All backends: first those from outside this package, then its own.
fn entries() -> impl Iterator<Item = &'static Entry> {
    let others = outside().unwrap_or_default().iter().chain(in_places().unwrap_or_default());
    OWN.get().into_iter().flatten().chain(others).chain(ENTRIES)
}

/// The colours of backends by name, on white and on black: of those in the registry, and of the other `names`.
pub fn colours<'a>(names: impl Iterator<Item = &'a str>) -> IndexMap<&'a str, [&'static str; 2]> {
    // All backends without a colour of their own draw from one list, so that a colour repeats only after the last.
    let mut others = OWN_COLOURS.into_iter().cycle();
    let colour = |entry: &Entry| Some((entry.name, entry.colour.or_else(|| others.next())?));
    let mut colours: IndexMap<&str, _> = entries().filter_map(colour).collect();
    let unknown: BTreeSet<&str> = names.filter(|name| !colours.contains_key(name)).collect();
    colours.extend(unknown.into_iter().zip(others));
    colours
}

impl Entry {
    /// The backend.
    ///
    /// # Errors
    /// `unavailable`: this build does not have it; the message says what adds it.
    pub fn backend(&self) -> Result<&'static dyn Backend, CaseFailure> {
        self.backend.ok_or_else(|| {
            let (feature, _) = backend_and_settings(self.name);
            let advice = Paths::find().build_advice(self.setup, feature);
            CaseFailure::unavailable(format!("not in this build; {advice}"))
        })
    }

    /// The version of the native library for a device, or of the crate if there is no native library.
    pub fn library_version(&self, device: &str) -> String {
        let library = self.backend.and_then(|backend| backend.library_version(device));
        library.unwrap_or_else(|| self.version.into())
    }

    /// The native library for a device, if this build has the backend and the library is here.
    pub fn library_path(&self, device: &str) -> Option<PathBuf> {
        self.backend.and_then(|backend| backend.library_path(device))
    }
}

/// The backends that compute something: all but the null backend.
pub fn real() -> impl Iterator<Item = &'static Entry> {
    entries().filter(|entry| entry.name != NULL)
}

/// The backends of this package that are in this build; each is a Cargo feature.
pub fn built() -> Vec<&'static str> {
    let built = ENTRIES.iter().filter(|entry| entry.name != NULL && entry.backend.is_some());
    built.map(|entry| entry.name).collect()
}

/// The Cargo features other than backends that change what a build can measure, and whether this build has them.
const OTHER_FEATURES: [(&str, bool); 5] = [
    ("candle-cuda", cfg!(feature = "candle-cuda")),
    ("candle-metal", cfg!(feature = "candle-metal")),
    ("candle-onnx", cfg!(feature = "candle-onnx")),
    ("candle-transformers", cfg!(feature = "candle-transformers")),
    ("text", cfg!(feature = "text")),
];

/// The Cargo features of this build that change what it can measure.
pub fn features() -> Vec<&'static str> {
    let others = OTHER_FEATURES.into_iter().filter(|(_, is_built)| *is_built);
    built().into_iter().chain(others.map(|(name, _)| name)).collect()
}

/// The entry of that name.
///
/// # Errors
/// `unavailable`: there is none; the message lists the names.
pub fn entry(name: &str) -> Result<&'static Entry, CaseFailure> {
    entries().find(|entry| entry.name == name).or_else(|| with_own_settings(name)).ok_or_else(|| {
        let names: Vec<&str> = real().map(|entry| entry.name).collect();
        let alike = names.iter().map(|other| (strsim::jaro_winkler(name, other), other));
        let nearest = alike.filter(|(likeness, _)| *likeness > 0.85).max_by(|one, other| one.0.total_cmp(&other.0));
        let meant = nearest.map(|(_, other)| format!(" (did you mean {other}?)")).unwrap_or_default();
        CaseFailure::unavailable(format!("no backend {name:?}{meant}; there are {}", names.join(", ")))
    })
}

/// The backend of that name.
///
/// # Errors
/// `unavailable`: there is none, or this build does not have it.
pub fn find(name: &str) -> Result<&'static dyn Backend, CaseFailure> {
    entry(name)?.backend()
}

/// Checks that a backend can load an artifact of the model in this dtype.
///
/// # Errors
/// `unavailable`: there is no such backend. `unsupported`; the message says what is missing.
pub fn check_model(name: &str, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
    let backend = find(name)?;
    if model.is_gguf() && backend.reads() == Reads::Graphs && name != NULL {
        return Err(CaseFailure::unsupported("it reads no GGUF files; llama-cpp and candle do"));
    }
    check_blocks(model).map_err(|why| CaseFailure::unsupported(format!("{why:#}")))?;
    backend.check_model(model, dtype)
}

/// The field's name of a backend; its own name if the registry does not have it.
pub fn framework(name: &str) -> &str {
    entry(name).map_or(name, |entry| entry.framework)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_a_feature_of_the_manifest() {
        let manifest: toml::Table = toml::from_str(include_str!("../../Cargo.toml")).unwrap();
        let features = manifest["features"].as_table().unwrap();
        for entry in real() {
            assert!(features.contains_key(entry.name), "{}", entry.name);
            let message = entry.backend().err().map(|failure| failure.message);
            assert!(message.is_none_or(|message| message.contains(&format!("--features {}", entry.name))));
        }
        let with_setting = entry("torch.sdpa").unwrap().backend().err();
        assert!(with_setting.is_none_or(|failure| failure.message.contains("--features torch`")));
        for name in features.keys().filter(|name| name.starts_with("candle-")) {
            assert!(OTHER_FEATURES.iter().any(|(other, _)| other == name), "a duel's builds lack {name}");
        }
    }

    #[test]
    fn an_engine_has_a_name_of_its_own() {
        let refused = |name: &str| {
            let engine: Box<dyn Backend> = Box::new(Null);
            format!("{:#}", register(vec![(name.to_owned(), engine)]).unwrap_err())
        };
        assert_eq!(refused("pytorch"), "\"pytorch\" is a name of the backend \"torch\": give your engine another one");
        assert!(refused("ort").starts_with("\"ort\" is a name of the backend"));
        assert!(refused("Mine").starts_with("backend \"Mine\": "));
    }

    #[test]
    fn a_backend_that_is_not_in_this_build_is_none_in_an_environment_either() {
        for Entry { name, .. } in ENTRIES {
            let missing = find(name).err().map(|failure| format!("{name}: {}", failure.message));
            let refused = in_place((format!("{name}@old"), "old".into())).err().map(|why| why.to_string());
            let has_none =
                format!("{name} has no runtime in a Python environment; ort, openvino, jax and torch have one");
            assert!(missing.map_or(refused.as_ref().is_none_or(|why| *why == has_none), |why| refused == Some(why)));
        }
    }

    #[test]
    fn colours_are_told_apart() {
        let mut colours: Vec<&str> =
            ENTRIES.iter().filter_map(|entry| entry.colour).chain(OWN_COLOURS).flatten().collect();
        let count = colours.len();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), count);
    }
}
