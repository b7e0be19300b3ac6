//! The documents of the project, and the code blocks in them.

use std::fs;
use std::path::{Path, PathBuf};

use super::checkout;

/// Every document for readers: the README, the contributors' pages, the guide, the description of the models.
pub fn all() -> Vec<PathBuf> {
    let mut documents = vec![checkout().join("README.md"), checkout().join("models/README.md")];
    for folder in [".github", "src/guide"] {
        let files = fs::read_dir(checkout().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        documents.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    documents
}

/// The fenced blocks of a language in a document.
pub fn blocks(document: &Path, language: &str) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    blocks.collect()
}
