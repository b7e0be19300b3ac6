//! Makes models from the files and folders that a user names.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indexmap::IndexMap;
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use super::decoders::{are_of_one_model, file_kind};
use super::user_files::{check_model_file, configuration_of, is_gguf, is_graph, is_weights_with_toml, standing_for};
use crate::definition::{ORIGINAL, SuiteModel, check_component, usable_name};

/// The path in a word of a command line, which is `NAME=FILE` or `FILE`.
pub fn path_of(word: &str) -> PathBuf {
    named(word).1
}

fn named(word: &str) -> (Option<String>, PathBuf) {
    // `FILE.py:make` is `FILE.py`, because the function of a Python file is always called `make`.
    let word = word.strip_suffix(":make").filter(|file| file.ends_with(".py")).unwrap_or(word);
    match word.split_once('=').filter(|_| !Path::new(word).exists()) {
        Some((name, path)) if check_component(name).is_ok() => (Some(name.to_owned()), PathBuf::from(path)),
        _ => (None, PathBuf::from(word)),
    }
}

/// Stems that do not describe a model, which is then named by its folder.
const NAMELESS: [&str; 4] = ["model", "onnx", "network", "config"];

/// The stem of a file. That of a part of a language model is `model`, or `model.quantized` if the part's stem ends with
/// `_quantized`.
pub(super) fn stem(path: &Path) -> String {
    let own = file_stem(path);
    match file_kind(&own) {
        Some((_, suffix)) => format!("model{}", suffix.replacen('_', ".", 1)),
        None => own,
    }
}

/// The files of models in and below a folder, sorted by name.
pub(super) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let files = WalkDir::new(folder).sort_by_file_name().into_iter().flatten().map(walkdir::DirEntry::into_path);
    let is_model = |file: &PathBuf| is_graph(file) || is_gguf(file) || is_weights_with_toml(file);
    files.filter(|file| is_model(file) && file.is_file()).collect()
}

/// The models of files, and of all files in and below folders. A name may stand before a file, or before a folder with
/// one model: `NAME=FILE`.
///
/// A model is named by the stem of its file. Beside `net.onnx`, `net.int8.onnx` is its variant `int8`. `model.onnx` is
/// named by its folder, and a file without a usable character in its name by its folder and a hash. If a name is taken,
/// or reserved by Criterion, the names of the folders above are put before it until it is free.
///
/// # Errors
/// A file does not exist, is of an unknown kind or has a path that is not UTF-8; a folder has no model; a name is given
/// to a folder with several models; or no name is free.
pub fn models_of_paths(words: &[String]) -> Result<Vec<SuiteModel>> {
    let mut files: Vec<(Option<String>, PathBuf)> = Vec::new();
    for (name, path) in words.iter().map(|word| named(word)) {
        if path.is_dir() {
            let found: Vec<PathBuf> = files_below(&path).into_iter().map(standing_for).collect();
            if let Some(configuration) = configuration_of(&path).filter(|_| found.is_empty()) {
                files.push((name, configuration));
                continue;
            }
            ensure!(
                !found.is_empty(),
                "{} has no model: files of models end with `.onnx`, `.pt` or `.gguf`, and a model hub's folder has config.json and weights",
                path.display()
            );
            ensure!(
                name.is_none() || found.iter().all(|file| is_same_model(&found[0], file)),
                "{} has several models, which cannot have one name: give each of its files a name, as in `mine={}`",
                path.display(),
                found[0].display()
            );
            files.extend(found.into_iter().map(|file| (name.clone(), file)));
        } else {
            let word = path.to_string_lossy();
            ensure!(
                !word.contains(".py:"),
                "{word}: the function of a Python file is called `make`; write its name without `:`"
            );
            ensure!(path.is_file(), "there is no file {}", path.display());
            check_model_file(&path)?;
            files.push((name, standing_for(path)));
        }
    }
    if let Some((_, file)) = files.iter().find(|(_, file)| file.to_str().is_none()) {
        bail!("{}: the name is not UTF-8: give the file another one", file.display());
    }
    let mut models: IndexMap<(String, String), SuiteModel> = IndexMap::new();
    for (place, (said, path)) in files.iter().enumerate() {
        if files[..place].iter().any(|(_, earlier)| is_same_model(earlier, path)) {
            continue;
        }
        let mut folders = folders_above(path).into_iter();
        let own = stem(path);
        let (_, variant) = split_stem(&own);
        let first = own.split('.').next().unwrap_or_default();
        let base = usable_or_hash(first);
        let is_hashed = |name: &str| name == base && usable_name(first).is_empty();
        let is_base = |other: &Path| other.parent() == path.parent() && usable_or_hash(&stem(other)) == base;
        let has_base = files.iter().any(|(_, other)| is_base(other));
        let (mut name, variant) = match said {
            Some(name) => (name.clone(), ORIGINAL.to_owned()),
            None if has_base => (base.clone(), variant),
            None => (usable_or_hash(&own), ORIGINAL.to_owned()),
        };
        if said.is_none() && NAMELESS.contains(&name.as_str()) {
            name = folders.next().unwrap_or(name);
        } else if said.is_none()
            && is_hashed(&name)
            && let Some(folder) = folders.next()
        {
            name = usable_name(&format!("{folder}-{name}"));
        }
        // A file in another folder is not a variant of the same model, even if the names of the files suggest it.
        let is_taken = |name: &str| {
            models.iter().any(|((other, form), model)| {
                let folder = model.path.as_deref().and_then(Path::parent);
                other == name && (*form == variant || folder != path.parent())
            })
        };
        while is_taken(&name) || check_component(&name).is_err() {
            let Some(folder) = folders.next() else { break };
            name = usable_name(&format!("{folder}-{name}"));
        }
        check_component(&name).with_context(|| format!("{}: name it, as in `mine={0}`", path.display()))?;
        ensure!(!is_taken(&name), "{} has the name {name} of another file: name it, as in `mine={0}`", path.display());
        let is_other = variant != ORIGINAL;
        let model = SuiteModel {
            name: name.clone(),
            variant: is_other.then(|| variant.clone()),
            path: Some(path.clone()),
            is_named_by_file: said.is_none(),
            stands_alone: true,
            ..SuiteModel::default()
        };
        models.insert((name, variant), model);
    }
    Ok(models.into_values().collect())
}

/// The usable name of a stem. If none of its characters is usable, a part of its hash keeps it distinct.
fn usable_or_hash(stem: &str) -> String {
    let name = usable_name(stem);
    if !name.is_empty() {
        return name;
    }
    Sha256::digest(stem).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The names of the folders above a file that describe a model, the nearest first. A link counts as a file of the
/// folder that has the link.
fn folders_above(file: &Path) -> Vec<String> {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_default();
    let names = folder.ancestors().filter_map(|folder| Some(usable_name(folder.file_name()?.to_str()?)));
    names.filter(|name| !name.is_empty() && !NAMELESS.contains(&name.as_str())).collect()
}

/// The first file as a model, and the others as its variants. A name may stand before a file: `NAME=FILE`.
///
/// Otherwise the model is named by the stem of its file, and a variant by its stem without the model's stem at its start.
/// Graphs with the same stem in one folder are one model in two formats.
///
/// # Errors
/// A file is of an unknown kind, a name is unusable, or the names do not say which variant a file is.
pub fn models_of_files(files: &[String]) -> Result<Vec<SuiteModel>> {
    let stem = |path: &Path| stem(path).to_lowercase();
    let files: Vec<(Option<String>, PathBuf)> = files.iter().map(|word| named(word)).collect();
    files.iter().try_for_each(|(_, path)| check_model_file(path))?;
    let Some(((first_name, first), others)) = files.split_first() else { return Ok(Vec::new()) };
    let name = first_name.clone().unwrap_or_else(|| usable_name(&stem(first)));
    check_component(&name)?;
    let model = |variant: Option<String>, path: &Path| SuiteModel {
        name: name.clone(),
        variant,
        path: Some(path.to_owned()),
        ..SuiteModel::default()
    };
    let mut models = vec![model(None, first)];
    for (place, (variant, path)) in (1..).zip(others) {
        let is_there_already = files[..place].iter().any(|(_, earlier)| is_same_model(earlier, path));
        if variant.is_none() && is_there_already {
            continue;
        }
        let own = stem(path);
        let rest = usable_name(own.strip_prefix(&stem(first)).unwrap_or(&own));
        let variant = variant.clone().or(Some(rest)).filter(|variant| !variant.is_empty()).with_context(|| {
            format!("{} has the name of the first file: say which form it is, as in `int8={0}`", path.display())
        })?;
        models.push(model(Some(variant), path));
    }
    Ok(models)
}

/// Whether two files belong to one model, such as an `.onnx` and a `.pt`, or an encoder and a decoder.
fn is_same_model(one: &Path, other: &Path) -> bool {
    let is_stem_same = one.file_stem() == other.file_stem() && one.parent() == other.parent();
    one == other || (is_graph(one) && is_graph(other) && (is_stem_same || are_of_one_model(one, other)))
}

pub(super) fn file_stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Splits a stem into model and variant: `digits.int8-static` is the variant `int8-static` of `digits`. Characters that
/// Criterion's ids do not allow become `-`.
pub(super) fn split_stem(stem: &str) -> (String, String) {
    match stem.split_once('.') {
        Some((name, variant)) => (usable_name(name), usable_name(variant)),
        None => (usable_name(stem), ORIGINAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stem_names_model_and_variant() {
        assert_eq!(split_stem("digits.int8-static"), ("digits".into(), "int8-static".into()));
        assert_eq!(split_stem("My Model (v2)"), ("my-model--v2".into(), "original".into()));
    }

    /// Makes files in a folder. Returns the names and variants of their models.
    fn named_in(folder: &Path, files: &[&str]) -> Vec<String> {
        let make = |file: &&str| {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path.display().to_string()
        };
        let words: Vec<String> = files.iter().map(make).collect();
        let told = |model: SuiteModel| format!("{} {}", model.name, model.variant.unwrap_or_else(|| ORIGINAL.into()));
        models_of_paths(&words).unwrap().into_iter().map(told).collect()
    }

    #[test]
    fn a_form_is_of_the_model_in_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let expected = ["net original", "b-net int8", "b-net original"];
        assert_eq!(named_in(folder.path(), &["a/net.onnx", "b/net.int8.onnx", "b/net.onnx"]), expected);
        let expected = ["net original", "b-net original", "b-net int8"];
        assert_eq!(named_in(folder.path(), &["a/net.onnx", "b/net.onnx", "b/net.int8.onnx"]), expected);
    }

    #[test]
    fn names_without_a_usable_character_remain_different() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["数据", "模型"].map(|stem| format!("m3-{}", usable_or_hash(stem)));
        assert_ne!(one, other);
        for (file, name) in [("m3/数据.onnx", &one), ("m3/模型.onnx", &other)] {
            assert_eq!(named_in(folder.path(), &[file]), [format!("{name} original")]);
        }
        let files = ["m3/数据.onnx", "m3/数据.int8.onnx", "m3/模型.onnx"];
        let expected = [format!("{one} original"), format!("{one} int8"), format!("{other} original")];
        assert_eq!(named_in(folder.path(), &files), expected);
    }

    #[test]
    fn folders_of_one_name_are_told_apart_by_those_above() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["cat/1/model.onnx", "dog/1/model.onnx", "emu/1/model.onnx"];
        assert_eq!(named_in(folder.path(), &files), ["1 original", "dog-1 original", "emu-1 original"]);
    }

    #[test]
    fn a_name_before_a_folder_is_that_of_its_only_model() {
        let folder = tempfile::tempdir().unwrap();
        let named = |files: &[&str]| {
            named_in(folder.path(), files);
            let models = models_of_paths(&[format!("mine={}", folder.path().display())]);
            models.map(|models| models.into_iter().map(|model| model.name).collect::<Vec<_>>())
        };
        assert_eq!(named(&["net.onnx", "net.pt"]).unwrap(), ["mine"]);
        let error = named(&["other.onnx"]).unwrap_err().to_string();
        assert!(error.contains("several models") && error.ends_with("net.onnx`"), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn a_link_is_named_by_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        named_in(folder.path(), &["blobs/abc.onnx"]);
        std::fs::create_dir(folder.path().join("net")).unwrap();
        let link = folder.path().join("net/model.onnx");
        std::os::unix::fs::symlink(folder.path().join("blobs/abc.onnx"), &link).unwrap();
        assert_eq!(models_of_paths(&[link.display().to_string()]).unwrap()[0].name, "net");
    }

    #[test]
    fn files_are_a_model_and_its_variants() {
        let named = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(ToString::to_string).collect();
            models_of_files(&files).map_err(|error| error.to_string()).map(|models| {
                let name = |model: SuiteModel| (model.name, model.variant.unwrap_or_default());
                models.into_iter().map(name).collect::<Vec<_>>()
            })
        };
        let pairs = |pairs: &[(&str, &str)]| Ok(pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect());
        assert_eq!(named(&["a/Net.onnx", "b/net-int8.onnx"]), pairs(&[("net", ""), ("net", "int8")]));
        assert_eq!(named(&["net.onnx", "net.pt", "quantized.onnx"]), pairs(&[("net", ""), ("net", "quantized")]));
        assert_eq!(named(&["mine=a/net.onnx", "small=b/net.onnx"]), pairs(&[("mine", ""), ("mine", "small")]));
        assert!(named(&["a/net.onnx", "b/net.onnx"]).unwrap_err().contains("int8=b/net.onnx"));
        // A model and each of its variants in two formats.
        let formats = ["net.onnx", "net-int8.onnx", "net.pt", "net-int8.pt"];
        assert_eq!(named(&formats), pairs(&[("net", ""), ("net", "int8")]));
        // Files whose names differ only in what a model's name leaves out.
        assert!(named(&["Net.onnx", "net.onnx"]).unwrap_err().contains("say which form it is, as in `int8=net.onnx`"));
        assert!(named(&["net.onnx", "net.safetensors"]).unwrap_err().contains("`int8=net.safetensors`"));
        for other in ["net.pth", "net.ONNX", "net.toml", "net"] {
            for files in [vec![other], vec!["net.onnx", other]] {
                let error = named(&files).unwrap_err();
                assert!(error.starts_with(&format!("{other} is not read as a model: there are `.onnx`")), "{error}");
            }
        }
        assert!(named(&["a/---.onnx"]).is_err());
        assert_eq!(named(&[]), Ok(Vec::new()));
        let long = "long-".repeat(20);
        let files = [format!("{long}name.onnx"), format!("{long}name-int8.onnx")];
        let shortened = usable_name(&format!("{long}name"));
        assert_eq!(named(&files.each_ref().map(String::as_str)), pairs(&[(&shortened, ""), (&shortened, "int8")]));
    }
}
