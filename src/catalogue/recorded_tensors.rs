//! Finds out what recorded tensors are for: whether samples can be the inputs of a model, and which files beside a graph are
//! its reference.

use std::path::{Path, PathBuf};

use fs_err::File;
use safetensors::SafeTensors;
use zip::ZipArchive;

use super::user_files::has_extension;
use crate::definition::{DataSource, Model, TensorSpec};
use crate::onnx::map_file;

impl DataSource {
    /// Whether the samples can be the inputs of a model; for recorded samples, their names decide. An unreadable file
    /// fits every model, so that its error is shown there.
    pub fn is_for(&self, model: &Model) -> bool {
        match self {
            DataSource::Synthetic => true,
            DataSource::Recorded(path) => {
                let has_all = |names: Vec<String>| {
                    model.inputs.iter().all(|input| names.contains(&format!("input.{}", input.name)))
                };
                tensor_names(path).is_none_or(has_all)
            }
            DataSource::ImageFolder(_) => model.may_take_pictures(),
            DataSource::Text(_) => model.text_inputs().is_some() || model.prompt_input().is_some(),
        }
    }
}

/// The reference beside a graph with these inputs and outputs: `NAME_output_0.pb`, `NAME.npz` or `NAME.safetensors` with outputs, or a folder
/// `test_data_set_0` as ONNX's own tests have it.
pub(super) fn reference_of(graph: &Path, inputs: &[TensorSpec], outputs: &[TensorSpec]) -> Option<PathBuf> {
    let folder = graph.parent()?;
    let stem = graph.file_stem()?.to_str()?;
    let [first_output, arrays] = [format!("{stem}_output_0.pb"), format!("{stem}.npz")].map(|name| folder.join(name));
    let tensors = graph.with_extension("safetensors");
    // Tensors without outputs are weights. An unreadable `.npz` counts as a reference, so that its error is shown.
    let has_outputs = |names: Vec<String>| {
        names.iter().any(|name| name.starts_with("output.") || name == "output_0")
            || !outputs.is_empty() && outputs.iter().all(|output| names.contains(&output.name))
    };
    // If the model does not name its outputs, all arrays except the inputs are outputs. An archive without the inputs
    // may be weights.
    let has_any = |names: Vec<String>| {
        let has_inputs = !inputs.is_empty() && inputs.iter().all(|input| names.contains(&input.name));
        outputs.is_empty() && has_inputs && names.len() > inputs.len() || has_outputs(names)
    };
    Some(first_output)
        .filter(|path| path.is_file())
        .or_else(|| Some(arrays).filter(|path| path.is_file() && tensor_names(path).is_none_or(has_any)))
        .or_else(|| Some(tensors).filter(|path| tensor_names(path).is_some_and(has_outputs)))
        .or_else(|| Some(folder.to_owned()).filter(|folder| folder.join("test_data_set_0/output_0.pb").is_file()))
}

/// The names of the tensors of a safetensors file, or of the arrays of an `.npz`.
pub fn tensor_names(path: &Path) -> Option<Vec<String>> {
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

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn tensors_beside_a_graph_are_its_reference_if_they_are_called_as_its_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("net.onnx");
        let outputs: [TensorSpec; 1] = ["logits:f32[1]".parse().unwrap()];
        let is_reference = |name: &str| {
            let tensors = [(name, TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap())];
            std::fs::write(graph.with_extension("safetensors"), safetensors::serialize(tensors, None).unwrap())
                .unwrap();
            reference_of(&graph, &[], &outputs).is_some()
        };
        assert!(["output.logits", "output_0", "logits"].into_iter().all(is_reference));
        assert!(!is_reference("layers.0.weight"));
    }

    #[test]
    fn arrays_beside_a_graph_are_its_reference_if_they_are_called_as_its_outputs_or_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("net.onnx");
        let arrays = graph.with_extension("npz");
        let is_reference = || reference_of(&graph, &[], &["logits:f32[1]".parse().unwrap()]).is_some();
        for (name, is_output) in [("logits", true), ("layers.0.weight", false)] {
            let mut archive = zip::ZipWriter::new(std::fs::File::create(&arrays).unwrap());
            archive.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            archive.finish().unwrap();
            assert_eq!(is_reference(), is_output, "{name}");
        }
        std::fs::write(&arrays, "no archive").unwrap();
        assert!(is_reference());
    }
}
