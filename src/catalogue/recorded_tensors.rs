//! Finds out what recorded tensors are for: whether samples can be the inputs of a model, and which files beside a graph are
//! its reference.

use std::path::{Path, PathBuf};

use fs_err::File;
use safetensors::SafeTensors;
use zip::ZipArchive;

use super::user_files::has_extension;
use crate::definition::{DataSource, Model};
use crate::onnx::map_file;

impl DataSource {
    /// Whether the samples can be the inputs of a model, as far as the names of recorded samples say. A file that cannot
    /// be read counts as one for any model, so that its error is shown there.
    pub fn is_for(&self, model: &Model) -> bool {
        match self {
            DataSource::Synthetic => true,
            DataSource::Recorded(path) => {
                let has_all = |names: Vec<String>| {
                    model.inputs.iter().all(|input| names.contains(&format!("input.{}", input.name)))
                };
                tensor_names(path).is_none_or(has_all)
            }
            DataSource::ImageFolder(_) => model.picture_size().is_some(),
            DataSource::Text(_) => model.text_inputs().is_some() || model.prompt_input().is_some(),
        }
    }
}

/// The reference beside a graph: `NAME_output_0.pb`, `NAME.npz`, `NAME.safetensors` with outputs, or a folder `test_data_set_0`
/// as ONNX's own tests have it.
pub(super) fn reference_of(graph: &Path) -> Option<PathBuf> {
    let folder = graph.parent()?;
    let stem = graph.file_stem()?.to_str()?;
    let [outputs, arrays] = [format!("{stem}_output_0.pb"), format!("{stem}.npz")].map(|name| folder.join(name));
    let tensors = graph.with_extension("safetensors");
    let is_reference =
        |path: &Path| tensor_names(path).is_some_and(|names| names.iter().any(|name| name.starts_with("output.")));
    [outputs, arrays]
        .into_iter()
        .find(|path| path.is_file())
        .or_else(|| Some(tensors).filter(|path| is_reference(path)))
        .or_else(|| Some(folder.to_owned()).filter(|folder| folder.join("test_data_set_0/output_0.pb").is_file()))
}

/// The names of the tensors of a safetensors file, or of the arrays of an `.npz`.
fn tensor_names(path: &Path) -> Option<Vec<String>> {
    if has_extension(path, "npz") {
        let mut archive = ZipArchive::new(File::open(path).ok()?).ok()?;
        let places = 0..archive.len();
        let name = |place| Some(archive.by_index(place).ok()?.name().ok()?.trim_end_matches(".npy").to_owned());
        return places.map(name).collect();
    }
    let map = map_file(path).ok()?;
    let (_, header) = SafeTensors::read_metadata(&map).ok()?;
    Some(header.offset_keys())
}
