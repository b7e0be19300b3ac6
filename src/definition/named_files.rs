//! Files that a flag names → a model and its variants.

use std::path::{Path, PathBuf};

use super::case::{check_component, usable_name};
use super::suite::SuiteModel;

/// The first file as a model, and the others as its variants. A name may stand before a file: `NAME=FILE`.
///
/// Otherwise the model has the stem of its file, and a variant its stem without what it has in common with the model's.
/// Files of one stem in one folder belong together, as a model in two formats.
pub fn models_of_files(files: &[String]) -> Result<Vec<SuiteModel>, String> {
    let named = |file: &String| match file.split_once('=') {
        Some((name, path)) if check_component(name).is_ok() => (Some(name.to_owned()), PathBuf::from(path)),
        _ => (None, PathBuf::from(file)),
    };
    let stem = |path: &Path| usable_name(&path.file_stem().unwrap_or_default().to_string_lossy());
    let files: Vec<(Option<String>, PathBuf)> = files.iter().map(named).collect();
    let Some(((first_name, first), others)) = files.split_first() else { return Ok(Vec::new()) };
    let name = first_name.clone().unwrap_or_else(|| stem(first));
    check_component(&name)?;
    let model = |variant: Option<String>, path: &Path| SuiteModel {
        name: name.clone(),
        variant,
        path: Some(path.to_owned()),
        ..SuiteModel::default()
    };
    let mut models = vec![model(None, first)];
    for (variant, path) in others {
        let own = stem(path);
        let rest = usable_name(own.strip_prefix(&stem(first)).unwrap_or(&own));
        let is_same_model = variant.is_none() && rest.is_empty() && path.parent() == first.parent();
        if is_same_model {
            continue;
        }
        let variant = variant.clone().or(Some(rest)).filter(|variant| !variant.is_empty()).ok_or_else(|| {
            format!("{} has the name of the first file: say which form it is, as in `int8={0}`", path.display())
        })?;
        models.push(model(Some(variant), path));
    }
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_a_model_and_its_variants() {
        let named = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            models_of_files(&files).map(|models| {
                let name = |model: SuiteModel| (model.name, model.variant.unwrap_or_default());
                models.into_iter().map(name).collect::<Vec<_>>()
            })
        };
        let pairs = |pairs: &[(&str, &str)]| Ok(pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect());
        assert_eq!(named(&["a/Net.onnx", "b/net-int8.onnx"]), pairs(&[("net", ""), ("net", "int8")]));
        assert_eq!(named(&["net.onnx", "net.pt", "quantized.onnx"]), pairs(&[("net", ""), ("net", "quantized")]));
        assert_eq!(named(&["mine=a/net.onnx", "small=b/net.onnx"]), pairs(&[("mine", ""), ("mine", "small")]));
        assert!(named(&["a/net.onnx", "b/net.onnx"]).unwrap_err().contains("int8=b/net.onnx"));
        assert!(named(&["a/---.onnx"]).is_err());
        assert_eq!(named(&[]), Ok(Vec::new()));
    }
}
