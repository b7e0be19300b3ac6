//! Which files of a model a backend loads.

use std::path::Path;

use super::interface::LoadRequest;
use crate::definition::{CaseFailure, Dtype, Model, Origin, Part, Phase};
use crate::fixture::{Artifacts, PartFiles};
use crate::graph_dtype::dequantise;

#[derive(Clone, Copy, strum::Display)]
pub(super) enum Format {
    #[strum(to_string = "ONNX")]
    Onnx,
    TorchScript,
}

/// Checks that the model has an artifact in this format, and that the dtype is one of the backend's.
pub(super) fn check_artifact(model: &Model, dtype: Dtype, dtypes: &[Dtype], format: Format) -> Result<(), CaseFailure> {
    let missing = match (&model.origin, format) {
        (_, Format::Onnx) if model.blocks().is_some() => Some(
            "it has no MatMulNBits, ONNX Runtime's operator for weights in blocks; ort, openvino and ort-web compute it",
        ),
        (
            Origin::Packaged { quantization: Some(_), .. } | Origin::Files { quantization: Some(_), .. },
            Format::TorchScript,
        ) => Some("this variant is made from ONNX graphs, and there is no TorchScript of it"),
        (Origin::Files { onnx: None, .. }, Format::Onnx) => Some(
            "needs a .onnx file of the same name: `inferbench import` makes one of a checkpoint or archive, and \
             `--backend torch` runs PyTorch's files",
        ),
        (Origin::Files { .. }, Format::TorchScript) if model.generation.is_some() => {
            Some("language models of files are run from their ONNX graphs")
        }
        (Origin::Files { torchscript, .. }, Format::TorchScript)
            if torchscript.as_ref().is_none_or(|file| file.extension() != Some("pt".as_ref())) =>
        {
            Some("needs a .pt file of the same name")
        }
        (Origin::Files { .. }, _) if model.generation.is_some() && dtype != model.dtype => {
            Some("a language model of files runs in the dtype of its files")
        }
        _ => None,
    };
    if let Some(missing) = missing {
        return Err(CaseFailure::unsupported(missing));
    }
    if !dtypes.contains(&dtype) {
        let names = names(dtypes);
        return Err(CaseFailure::unsupported(format!("{format} graphs run here in {names}, not in {dtype}")));
    }
    Ok(())
}

/// [`check_artifact`] for a backend that also computes ONNX graphs with weights in blocks. `of_blocks` are the dtypes
/// of the activations that it then supports.
pub(super) fn check_graphs(
    model: &Model,
    dtype: Dtype,
    of_blocks: &[Dtype],
    dtypes: &[Dtype],
) -> Result<(), CaseFailure> {
    if model.blocks().is_none() {
        return check_artifact(model, dtype, dtypes, Format::Onnx);
    }
    if of_blocks.contains(&dtype) {
        return Ok(());
    }
    let choices: Vec<String> = of_blocks.iter().map(|own| format!("`--dtype {own}`")).collect();
    let choices = choices.join(" or ");
    let why = format!("weights in blocks are not multiplied with activations of {dtype} here: choose {choices}");
    Err(CaseFailure::unsupported(why))
}

/// Writes the files of a model whose weights are in blocks into a folder, with the same weights in f32. Returns `None`
/// for other models.
pub(super) fn dequantised(request: &LoadRequest<'_>, folder: &Path) -> Result<Option<Artifacts>, CaseFailure> {
    if request.model.blocks().is_none() {
        return Ok(None);
    }
    let mut artifacts = request.artifacts.clone();
    for (part, files) in request.model.parts.iter().zip(&mut artifacts.parts) {
        if let Some(file) = &mut files.onnx {
            let exact = folder.join(format!("{}.onnx", part.name));
            dequantise(file, &exact)?;
            *file = exact;
        }
    }
    Ok(Some(artifacts))
}

/// Dtypes as a list for a message.
pub(super) fn names(dtypes: &[Dtype]) -> String {
    dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ")
}

/// The parts that a session of the request's phase needs, with their files in `format`, in the order of the model.
pub(super) fn parts_of<'a>(
    request: &LoadRequest<'a>,
    format: Format,
) -> Result<Vec<(&'a Part, &'a Path)>, CaseFailure> {
    let file_of = |(part, files): (&'a Part, &'a PartFiles)| {
        let file = match format {
            Format::Onnx => &files.onnx,
            Format::TorchScript => &files.torchscript,
        };
        let missing = || CaseFailure::unsupported(format!("there is no {format} file of part {:?}", part.name));
        Ok((part, file.as_deref().ok_or_else(missing)?))
    };
    parts_named(request)?.into_iter().map(file_of).collect()
}

/// The parts that a session of the request's phase needs, with their files, in the order of the model.
pub(super) fn parts_named<'a>(request: &LoadRequest<'a>) -> Result<Vec<(&'a Part, &'a PartFiles)>, CaseFailure> {
    let plan = |phase| {
        let missing = || CaseFailure::unsupported(format!("{} has no phase {phase}", request.model.name));
        request.model.phase(phase).ok_or_else(missing)
    };
    let mut names = plan(request.phase)?.parts.clone();
    if request.phase == Phase::Decode {
        names.extend(plan(Phase::Prefill)?.parts.iter().cloned());
    }
    let parts = request.model.parts.iter().zip(&request.artifacts.parts);
    Ok(parts.filter(|(part, _)| names.contains(&part.name)).collect())
}
