//! `inferbench setup`: gets native runtimes with `scripts/setup`, which has the list of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::Args;

use super::run_python;
use crate::paths::Paths;

/// Get native runtimes, pinned and checked by their hashes
///
/// If the active Python environment has a runtime, you need not install it: `inferbench devices` shows which runtimes were found, and where.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench setup --list\n  inferbench setup ort\n  inferbench setup openvino jax\n  \
        inferbench setup --device webgpu"
)]
pub struct Arguments {
    /// ort, tch, openvino, llama-cpp, jax, torch, browser or duckdb [default: ort and tch]
    #[arg(value_name = "PART")]
    parts: Vec<String>,
    /// What ONNX Runtime needs for these devices: openvino, qnn, webgpu, cuda, tensorrt, rocm
    #[arg(long, value_name = "NAME,…")]
    device: Option<String>,
    /// Show what can be installed, with its size, and install nothing
    #[arg(long, conflicts_with_all = ["parts", "device"])]
    list: bool,
    /// A Python with pip, which downloads packages
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let mut command = Command::new(&arguments.python);
    command.arg(paths.script("scripts/setup")?).args(&arguments.parts);
    command.args(arguments.device.iter().flat_map(|device| ["--device", device]));
    command.args(arguments.list.then_some("--list"));
    command.env("INFERBENCH_NATIVE", paths.native()).env("INFERBENCH_SETUP", "inferbench setup");
    if arguments.python != Path::new("python3") {
        command.env("INFERBENCH_SETUP_PYTHON", &arguments.python);
    }
    run_python(&mut command, "3.9")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_part_of_the_script() {
        let script = include_str!("../../scripts/setup");
        let named = script.lines().filter_map(|line| line.strip_prefix("    scripts/setup ")?.split(' ').next());
        let parts: Vec<&str> = named.filter(|part| !part.is_empty() && !part.starts_with('-')).collect();
        let help = Arguments::augment_args(clap::Command::new("setup")).render_long_help().to_string();
        let is_named = |part: &&str| help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|it| it == *part);
        let missing: Vec<&str> = parts.iter().copied().filter(|part| !is_named(part)).collect();
        assert!(parts.contains(&"llama-cpp") && missing.is_empty(), "{missing:?} of {parts:?}");
    }
}
