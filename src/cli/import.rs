//! `inferbench import`: makes the files that the backends read from a model in another format.
//!
//! `scripts/import/launch.py` does the work in Python, in an environment that it creates at first use.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::run_python;
use crate::catalogue::shell_word;
use crate::definition::{TensorSpec, check_component, usable_name};
use crate::exit_codes;
use crate::paths::Paths;

/// Make ONNX, TorchScript and safetensors files of a model
#[derive(Args)]
#[command(
    after_help = "The outputs of the source in PyTorch, or of an ONNX file in ONNX Runtime, become the reference.\n\nExamples:\n  inferbench import all-MiniLM-L6-v2/\n  inferbench import resnet.pth --architecture resnet50\n  \
    inferbench import net.pt2 --name mine\n\nThe Python packages that it needs (PyTorch, transformers) are downloaded once, into the cache."
)]
pub struct Arguments {
    /// A folder from a model hub, with config.json and weights; a hub id; or a file: `.pt2` of torch.export, TorchScript, ONNX, or a
    /// state dict
    source: String,
    /// The architecture of a state dict: a packaged model, or a model of torchvision
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,
    /// The name of the model [default: that of the source]
    #[arg(long)]
    name: Option<String>,
    /// The folder to write [default: models/exported/NAME]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// An input of a file that does not say its sizes: `x:f32[batch,3,224,224]`, `ids:i64[batch,sequence]<30522`
    #[arg(long, value_name = "NAME:TYPE[SIZES];…", value_delimiter = ';')]
    input: Vec<TensorSpec>,
    /// Python 3.11 or later, which creates the environment
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let name = arguments.name.clone().unwrap_or_else(|| name_of(&arguments.source));
    check_component(&name).context("give the model a name by `--name`")?;
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => {
            let is_packaged = paths.models()?.join("zoo").join(&name).exists();
            ensure!(!is_packaged, "{name} is a packaged model: give yours another name by `--name`");
            paths.imported(&name)
        }
    };
    let current = std::env::current_dir().unwrap_or_default();
    let shown = output.strip_prefix(current).unwrap_or(&output).display();
    ensure!(
        !output.exists(),
        "{shown} already exists: remove it, or import to another folder by `--name` or `--output`"
    );
    let program = paths.script("scripts/import/launch.py")?;
    let mut command = Command::new(&arguments.python);
    command.arg(program).arg(&arguments.source).arg("--name").arg(&name).arg("--output").arg(&output);
    command.args(arguments.architecture.iter().flat_map(|architecture| ["--architecture", architecture]));
    for input in &arguments.input {
        command.arg("--input").arg(input.to_string());
    }
    let code = run_python(&mut command, "3.11")?;
    if code == exit_codes::OK {
        let word = shell_word(&shown.to_string());
        println!("{shown}\n\nMeasure it:  inferbench run {word}\nCheck it:    inferbench verify {word}");
    }
    Ok(code)
}

/// The name of a file without its extension, that of a folder, or the part of a hub id after the organisation.
fn name_of(source: &str) -> String {
    let path = std::path::absolute(source).unwrap_or_else(|_| source.into());
    let path = path.canonicalize().unwrap_or(path);
    let name = if path.is_file() { path.file_stem() } else { path.file_name() };
    usable_name(&name.unwrap_or_default().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_its_file_its_folder_or_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let small = folder.path().join("Small-v1.5");
        std::fs::create_dir(&small).unwrap();
        std::fs::write(small.join("Net.v2.pt"), "").unwrap();
        assert_eq!(name_of(&format!("{}/", small.display())), "small-v1.5");
        assert_eq!(name_of(small.join("Net.v2.pt").to_str().unwrap()), "net.v2");
        assert_eq!(name_of("sentence-transformers/all-MiniLM-L6-v2"), "all-minilm-l6-v2");
    }
}
