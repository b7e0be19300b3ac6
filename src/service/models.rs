//! The models that a request can name: packaged ones, and the files of `models/exported`, `models/trained` and
//! `models/quantized`. Names are looked up in the catalogue; no path is made of a client's text.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::Serialize;
use walkdir::WalkDir;

use super::failure::Failure;
use crate::catalogue::{Entry, Place, find_name, is_model_file, read_catalogue};
use crate::definition::{ORIGINAL, Phase};
use crate::paths::Paths;

const MOST_CHARACTERS: usize = 200;
/// The most names that are suggested.
const MOST_NEAR: usize = 3;
/// The least similarity of suggested names, from 0 to 1.
const SIMILAR: f64 = 0.75;

/// A model as clients see it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Listed {
    pub model: String,
    pub variant: String,
    pub family: Option<String>,
    pub modality: Option<String>,
    pub parameters: Option<u64>,
    /// The names of its files. A request may use them, too.
    pub files: Vec<String>,
    pub phases: Vec<Phase>,
    pub sequence_lengths: Vec<usize>,
    /// Why it cannot be measured.
    pub unusable: Option<String>,
}

/// The model that a name stands for.
#[derive(Clone, Debug)]
pub struct Chosen {
    pub entry: Entry,
    /// The backend for the extension, if the name is that of a file.
    pub backend: Option<&'static str>,
}

/// The times of change and the sizes of folders and files. A file may grow after its folder has changed.
type Stamp = Vec<Option<(SystemTime, u64)>>;

pub struct Models {
    folder: PathBuf,
    /// The folders of packaged models and of users' models.
    folders: Vec<PathBuf>,
    /// The catalogue as it was last read. Reading it takes long, and could disturb a measurement.
    read: Mutex<Option<(Stamp, Arc<Vec<Entry>>)>>,
}

impl Models {
    /// # Errors
    /// There is no folder of models.
    pub fn new(paths: &Paths) -> anyhow::Result<Self> {
        let folder = paths.models()?;
        let folders = [vec![folder.join("zoo")], paths.users_models(&folder)].concat();
        Ok(Models { folder, folders, read: Mutex::new(None) })
    }

    /// The catalogue, which is read again when a file was added, changed or removed.
    pub fn catalogue(&self) -> anyhow::Result<Arc<Vec<Entry>>> {
        // A folder inside these folders may hold the files of a model.
        let files = self.folders.iter().flat_map(|folder| WalkDir::new(folder).max_depth(2).sort_by_file_name());
        let stamp_of = |file: walkdir::DirEntry| {
            let metadata = file.path().metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let stamp: Stamp = files.filter_map(Result::ok).map(stamp_of).collect();
        let mut read = self.read.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((of, entries)) = &*read
            && *of == stamp
        {
            return Ok(entries.clone());
        }
        let entries = Arc::new(read_catalogue(&self.folder)?);
        *read = Some((stamp, entries.clone()));
        Ok(entries)
    }

    /// The models, for a list.
    pub fn list(&self) -> anyhow::Result<Vec<Listed>> {
        let listed = |entry: &Entry| {
            let model = entry.model.as_ref().ok();
            Listed {
                model: entry.name.clone(),
                variant: entry.variant.clone(),
                family: model.map(|model| model.family.clone()),
                modality: model.map(|model| model.modality.clone()),
                parameters: model.and_then(|model| model.parameters),
                files: files(entry).filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect(),
                phases: model.map(|model| model.phases.iter().map(|plan| plan.phase).collect()).unwrap_or_default(),
                sequence_lengths: model.map(|model| model.sequence_lengths.clone()).unwrap_or_default(),
                unusable: entry.model.as_ref().err().map(|failure| failure.message.clone()),
            }
        };
        Ok(self.catalogue()?.iter().map(listed).collect())
    }

    /// Finds a model by the name that a client has written.
    ///
    /// # Errors
    /// 404, with similar names, if there is none, or if its file lies outside of the models; 422 if it cannot be read.
    pub fn find(&self, written: &str, variant: Option<&str>) -> Result<Chosen, Failure> {
        let catalogue = self.catalogue()?;
        let is_plain = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ',');
        let is_name = !written.is_empty()
            && written.chars().count() <= MOST_CHARACTERS
            && !written.starts_with(['.', '-'])
            && written.chars().all(is_plain);
        let entry = is_name.then(|| entry_of(written, variant, &catalogue)).flatten();
        let Some(entry) = entry else { return Err(unknown(written, variant, &catalogue)) };
        self.check_place(entry)?;
        if let Err(failure) = &entry.model {
            return Err(Failure::parameter(format!("{}: {}", entry.name, failure.message)));
        }
        Ok(Chosen { entry: entry.clone(), backend: backend_of(written) })
    }

    /// # Errors
    /// A file of the model is a link that leads out of the folder of models.
    fn check_place(&self, entry: &Entry) -> Result<(), Failure> {
        // Outside of a checkout, users' models are in folders of their own.
        let elsewhere = self.folders.iter().filter(|folder| !folder.starts_with(&self.folder));
        let allowed = elsewhere.chain([&self.folder]).filter_map(|folder| folder.canonicalize().ok());
        let allowed: Vec<PathBuf> = allowed.collect();
        let is_inside = |file: PathBuf| allowed.iter().any(|folder| file.starts_with(folder));
        let is_outside = |file: &PathBuf| file.canonicalize().is_ok_and(|file| !is_inside(file));
        match files(entry).any(is_outside) {
            true => Err(Failure::not_found(format!(
                "{}: its file is a link that leads out of the folder of models",
                entry.name
            ))),
            false => Ok(()),
        }
    }
}

/// The backend that runs files with this extension.
fn backend_of(written: &str) -> Option<&'static str> {
    match Path::new(written).extension()?.to_str()? {
        "onnx" => Some("ort"),
        "pt" => Some("tch"),
        "safetensors" => Some("candle"),
        _ => None,
    }
}

fn entry_of<'a>(written: &str, variant: Option<&str>, catalogue: &'a [Entry]) -> Option<&'a Entry> {
    let is_its_file = |entry: &&Entry| files(entry).any(|file| file.file_name().is_some_and(|name| name == written));
    let of_file = |place: fn(Place) -> bool| catalogue.iter().filter(move |entry| place(entry.place)).find(is_its_file);
    let by_file = match (is_model_file(Path::new(written)), variant) {
        (true, None) => of_file(|place| place == Place::Folder).or_else(|| of_file(|place| place != Place::Derived)),
        _ => None,
    };
    by_file.or_else(|| {
        // A name that is not ASCII finds a file by its whole name only.
        let name = find_name(written, catalogue).filter(|_| written.is_ascii())?;
        let variant = variant.unwrap_or(ORIGINAL);
        catalogue.iter().find(|entry| entry.name == name && entry.variant == variant)
    })
}

/// The files of a user's model, or the weights that a packaged model was given.
fn files(entry: &Entry) -> impl Iterator<Item = &PathBuf> {
    entry.model.iter().flat_map(|model| model.origin.files())
}

fn unknown(written: &str, variant: Option<&str>, catalogue: &[Entry]) -> Failure {
    let shown: String = written.chars().filter(|c| !c.is_control()).take(60).collect();
    if let Some(variant) = variant
        && let Some(name) = find_name(written, catalogue)
    {
        let variants = catalogue.iter().filter(|entry| entry.name == name).map(|entry| entry.variant.as_str());
        let variants = variants.collect::<Vec<_>>().join(", ");
        return Failure::not_found(format!("{name} has no variant {variant:?}; there are {variants}"));
    }
    let files = catalogue.iter().flat_map(files).filter_map(|file| Some(file.file_name()?.to_str()?.to_owned()));
    let names: BTreeSet<String> = catalogue.iter().map(|entry| entry.name.clone()).chain(files).collect();
    let likeness = |name: &String| strsim::jaro_winkler(&shown.to_lowercase(), &name.to_lowercase());
    let mut near: Vec<(f64, String)> = names.into_iter().map(|name| (likeness(&name), name)).collect();
    near.retain(|(likeness, _)| *likeness >= SIMILAR);
    near.sort_by(|one, other| other.0.total_cmp(&one.0));
    let near: Vec<String> = near.into_iter().take(MOST_NEAR).map(|(_, name)| name).collect();
    let advice = match near.as_slice() {
        [] => {
            "`GET /api/v1/models` lists the models; put files into models/exported, models/trained or models/quantized"
                .into()
        }
        near => format!("did you mean {}?", near.join(", ")),
    };
    Failure { near, ..Failure::not_found(format!("there is no model {shown:?}: {advice}")) }
}
