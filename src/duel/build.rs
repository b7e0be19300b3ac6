//! Builds a checked-out revision with the features of the running executable.
//!
//! All builds share one target folder, `<target>/inferbench/duel/build/`, so that the second one compiles little but the
//! package itself. What is built is kept as `executables/<commit>-<hash>`; the hash is that of all else on which a build
//! depends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::worktree::Worktree;
use crate::backend::registry;
use crate::harness::wait_for;
use crate::paths::Paths;

const LINES_SHOWN: usize = 25;
/// Beginnings of the names of variables that change what a compiler makes of a source.
const VARIABLES: [&str; 11] = [
    "RUSTFLAGS",
    "RUSTC",
    "RUSTUP_TOOLCHAIN",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_PROFILE_RELEASE_",
    "CARGO_BUILD_",
    "CARGO_TARGET_",
    "CC",
    "CFLAGS",
    "CXX",
    "LIBTORCH",
];

/// Builds a commit, unless it is built already, and returns its executable.
///
/// # Errors
/// The commit does not build, and the message ends with the last lines of the build; or
/// [`Interrupted`](crate::harness::Interrupted).
pub fn build(paths: &Paths, name: &str, commit: &str, worktree: &Worktree) -> Result<PathBuf> {
    let duels = paths.duels();
    let features = features_of(worktree).join(",");
    let protoc = paths.root().canonicalize().unwrap_or_default().join("scripts/protoc");
    // From one place for all revisions: cargo compiles a native crate anew when such a path changes.
    let native: Vec<(&str, PathBuf)> = [("LIBTORCH", paths.native().join("libtorch")), ("PROTOC", protoc)]
        .into_iter()
        .filter(|(variable, path)| std::env::var_os(variable).is_none() && path.exists())
        .collect();
    let circumstances = circumstances(paths, &features, &native)?;
    let executable = duels.join("executables").join(format!("{commit}-{}", hash(&circumstances)));
    if executable.is_file() {
        return Ok(executable);
    }
    let log = duels.join(format!("build-{commit}.log"));
    eprintln!("building {name} ({}; its messages go to {})", &commit[..12.min(commit.len())], log.display());
    let target = duels.join("build");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--bin", "inferbench", "--no-default-features", "--features"]);
    cargo.arg(features).current_dir(worktree.path()).env("CARGO_TARGET_DIR", &target).envs(native);
    let child = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs_err::File::create(&log)?.into_parts().0);
    let status = wait_for(child.spawn().with_context(|| format!("cargo, to build {name}"))?)?;
    if !status.success() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        bail!("{name} does not build ({status}):\n{last}");
    }
    keep_executable(&target.join("release/inferbench"), &executable)?;
    let _ = std::fs::remove_file(&log);
    Ok(executable)
}

/// Copies an executable to where it is kept, whole or not at all.
pub fn keep_executable(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    fs_err::create_dir_all(to.parent().unwrap_or(to))?;
    fs_err::copy(from, &partial)?;
    fs_err::rename(&partial, to)?;
    Ok(())
}

/// Everything but the commit on which a build depends: features, compiler, flags, and the native libraries that it links.
fn circumstances(paths: &Paths, features: &str, native: &[(&str, PathBuf)]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(&rustc).arg("-vV").stdin(Stdio::null()).output().context("rustc -vV")?;
    let mut lines = vec![features.to_owned(), String::from_utf8_lossy(&version.stdout).into_owned()];
    let is_relevant = |line: &String| {
        VARIABLES.iter().any(|beginning| line.starts_with(beginning)) && !line.starts_with("CARGO_TARGET_DIR=")
    };
    let mut variables: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
        .filter(is_relevant)
        .collect();
    variables.sort();
    lines.append(&mut variables);
    let native = native.iter().map(|(_, path)| path.clone()).chain([paths.native()]);
    lines.extend(native.filter_map(|path| Some(path.canonicalize().ok()?.display().to_string())));
    Ok(lines.join("\n"))
}

/// The first twelve digits of a text's SHA-256.
fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The backends of the running build that the revision has; it may be older than some of them.
fn features_of(worktree: &Worktree) -> Vec<&'static str> {
    let manifest = std::fs::read_to_string(worktree.path().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap_or_default();
    let own = manifest.get("features").and_then(toml::Value::as_table);
    let is_known = |name: &str| own.is_some_and(|own| own.contains_key(name));
    registry::features().into_iter().filter(|name| is_known(name)).collect()
}
