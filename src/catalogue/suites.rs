//! Reads suites: `models/suites/<name>.toml`, a TOML file of the user, or a custom set in JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use indexmap::IndexSet;
use serde_json::Value;

use super::entries::sorted_children;
use super::named_files::file_stem;
use super::user_files::has_extension;
use crate::definition::{Suite, SuiteModel, usual_backend};

/// Reads a suite by its name or path.
///
/// # Errors
/// There is no such suite, or the file is not a suite; the message lists the suites that there are.
pub fn read_suite(name_or_path: &str, models_folder: &Path) -> Result<Suite> {
    let folder = models_folder.join("suites");
    let is_path = name_or_path.contains(['/', '.']);
    let path = if is_path { PathBuf::from(name_or_path) } else { folder.join(format!("{name_or_path}.toml")) };
    let text = fs_err::read_to_string(&path).map_err(|error| {
        let files = sorted_children(&folder).unwrap_or_default();
        let names = files.iter().filter(|file| has_extension(file, "toml"));
        let names = names.map(|file| file_stem(file)).collect::<Vec<_>>().join(", ");
        match is_path {
            true => anyhow!("no suite {name_or_path:?}: {error}"),
            false => anyhow!("no suite {name_or_path:?}; there are {names}, or give a path"),
        }
    })?;
    let read = || -> Result<Suite> {
        let suite = if has_extension(&path, "json") { custom_set(&text)? } else { toml::from_str(&text)? };
        let mut suite = suite.with_paths_in(path.parent().unwrap_or(Path::new("")));
        let of_models = suite.models.iter_mut().filter_map(|model| model.backends.as_mut());
        for backends in of_models.chain([&mut suite.backends]) {
            let names = backends.iter().map(|name| backend_of_suite(name)).collect::<Result<IndexSet<String>>>()?;
            *backends = names.into_iter().collect();
        }
        suite.name = suite.shard.as_ref().map_or_else(|| file_stem(&path), |shard| shard.suite.clone());
        suite.check()?;
        Ok(suite)
    };
    read().with_context(|| path.display().to_string())
}

/// The one name of a backend in a suite. Only a flag may name the folder of an environment.
fn backend_of_suite(text: &str) -> Result<String> {
    let name = usual_backend(text)?;
    ensure!(
        !name.contains(['/', '\\']),
        "{name:?}: a suite names no folders; use `--backend {name}`, or `inferbench duel FOLDER FOLDER` for two environments"
    );
    Ok(name)
}

/// Reads a custom set, the JSON form of a suite: models by key. A model with a `path` has the name of its key; the others
/// are models of the catalogue, by name or hub id.
fn custom_set(text: &str) -> Result<Suite> {
    let entries: BTreeMap<String, serde_json::Map<String, Value>> = serde_json::from_str(text)?;
    let model = |(key, mut entry): (String, serde_json::Map<String, Value>)| {
        // It is for readers of the file.
        entry.remove("size");
        if entry.contains_key("path") || !entry.contains_key("name") {
            entry.insert("name".into(), key.as_str().into());
        }
        serde_json::from_value::<SuiteModel>(entry.into()).context(key)
    };
    let models = entries.into_iter().map(model).collect::<Result<Vec<_>>>()?;
    let backends = ["ort", "tch", "candle"].map(str::to_owned).into();
    Ok(Suite { allows_unknown_models: true, models, batch_sizes: vec![1, 8], ..Suite::new("", backends) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_with_settings_has_one_name_in_suites() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        let write = |backends: &str| {
            let text = format!(
                "backends = [{backends}]\nbatch_sizes = [1]\nmodels = [{{ name = 'a', backends = ['PyTorch.sdpa.autocast'] }}]"
            );
            std::fs::write(&path, text).unwrap();
            read_suite(path.to_str().unwrap(), folder.path())
        };
        let suite =
            write("'torch-compile.max-autotune.autocast', 'Torch-Compile.autocast.max-autotune', 'ort'").unwrap();
        assert_eq!(suite.backends, ["torch-compile.autocast.max-autotune", "ort"]);
        assert_eq!(suite.models[0].backends.as_deref().unwrap(), ["torch.autocast.sdpa"]);
        let error = format!("{:#}", write("'torch.fast'").unwrap_err());
        assert!(error.contains("PyTorch has no setting \"fast\""), "{error}");
        let error = format!("{:#}", write("'ort@/old'").unwrap_err());
        assert!(error.contains("a suite names no folders; use `--backend ort@/old`"), "{error}");
    }

    #[test]
    fn a_custom_set_names_models_or_files() {
        let set = r#"{"bert_tiny": {"name": "bert-small", "family": "embedding", "size": "tiny", "modality": "text"},
            "mine": {"path": "m.onnx", "family": "cnn"}}"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.json");
        std::fs::write(&path, set).unwrap();
        let suite = read_suite(path.to_str().unwrap(), folder.path()).unwrap();
        assert_eq!((suite.models[0].name.as_str(), &suite.models[0].path), ("bert-small", &None));
        assert_eq!(
            (suite.models[1].name.as_str(), &suite.models[1].path),
            ("mine", &Some(folder.path().join("m.onnx")))
        );
        assert!(format!("{:#}", custom_set(r#"{"a": {"wheels": 1}}"#).unwrap_err()).contains("wheels"));
    }
}
