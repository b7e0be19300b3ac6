//! Whether the samples of a data source can be the inputs of a model.

use std::path::Path;

use safetensors::SafeTensors;

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
                    model.inputs.iter().all(|input| names.contains(&format!("{INPUT}{}", input.name)))
                };
                tensor_names(path).is_none_or(has_all)
            }
            DataSource::ImageFolder(_) => model.picture_size().is_some(),
        }
    }

    /// The models that the samples can be for, in words.
    pub fn needs(&self) -> &'static str {
        match self {
            DataSource::Synthetic => "any model",
            DataSource::Recorded(_) => {
                "recorded samples are for a model of which the file has each input as a tensor `input.<name>`"
            }
            DataSource::ImageFolder(_) => {
                "pictures are for a model whose only input is f32 [batch, 3, height, width], with sizes that are fixed"
            }
        }
    }
}

/// The prefix of the names of recorded inputs.
const INPUT: &str = "input.";

/// The names of the tensors of a safetensors file.
pub(super) fn tensor_names(path: &Path) -> Option<Vec<String>> {
    let map = map_file(path).ok()?;
    let (_, header) = SafeTensors::read_metadata(&map).ok()?;
    Some(header.offset_keys())
}
