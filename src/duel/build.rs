//! Builds a checked-out revision with the features of the running executable.
//!
//! All builds share one target folder, `<target>/inferbench/duel/build/`, so that the second one compiles little but the
//! package itself. What is built is kept as `executables/<commit>-<features>-<hash>`; the hash is that of all else on which
//! a build depends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::process::wait;
use super::worktree::Worktree;
use crate::backend::registry;
use crate::paths::Paths;

const LINES_SHOWN: usize = 25;
/// Variables that change what a compiler makes of a source; of `CARGO_PROFILE_RELEASE_*` and `CARGO_BUILD_*`, all do.
const VARIABLES: [&str; 9] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTUP_TOOLCHAIN",
    "CC",
    "CFLAGS",
    "CXXFLAGS",
    "LIBTORCH",
];
const PREFIXES: [&str; 3] = ["CARGO_PROFILE_RELEASE_", "CARGO_BUILD_", "CARGO_TARGET_"];

/// Builds a commit, unless it is built already, and returns its executable. Returns `None` if the user stopped the build.
///
/// # Errors
/// The commit does not build; the message ends with the last lines of the build.
pub fn build(paths: &Paths, name: &str, commit: &str, worktree: &Worktree) -> Result<Option<PathBuf>> {
    let duels = paths.duels();
    let features = features_of(worktree);
    let named_features = if features.is_empty() { "no-backend".to_owned() } else { features.join("+") };
    // From one place for all revisions: cargo compiles a native crate anew when such a path changes.
    let native: Vec<(&str, PathBuf)> = [("LIBTORCH", paths.native().join("libtorch")), ("PROTOC", protoc(paths))]
        .into_iter()
        .filter(|(variable, path)| std::env::var_os(variable).is_none() && path.exists())
        .collect();
    let circumstances = circumstances(paths, &native)?;
    let file_name = format!("{commit}-{named_features}-{}", hash(&circumstances));
    let executable = duels.join("executables").join(file_name);
    if executable.is_file() {
        return Ok(Some(executable));
    }
    let log = duels.join(format!("build-{commit}.log"));
    eprintln!("building {name} ({}; its messages go to {})", &commit[..12.min(commit.len())], log.display());
    let target = duels.join("build");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--bin", "inferbench", "--no-default-features", "--features"]);
    cargo.arg(features.join(",")).current_dir(worktree.path()).env("CARGO_TARGET_DIR", &target).envs(native);
    let child = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs_err::File::create(&log)?.into_parts().0);
    let child = child.spawn().with_context(|| format!("cargo, to build {name}"))?;
    let Some(status) = wait(child)? else { return Ok(None) };
    if !status.success() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        bail!("{name} does not build ({status}):\n{last}");
    }
    keep_executable(&target.join("release/inferbench"), &executable)?;
    let _ = std::fs::remove_file(&log);
    Ok(Some(executable))
}

/// Copies an executable to where it is kept, whole or not at all.
///
/// # Errors
/// It cannot be read, or the folder cannot be written.
pub fn keep_executable(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    fs_err::create_dir_all(to.parent().unwrap_or(to))?;
    fs_err::copy(from, &partial)?;
    fs_err::rename(&partial, to)?;
    Ok(())
}

/// Everything but commit and features on which a build depends: compiler, flags, and the native libraries that it links.
fn circumstances(paths: &Paths, native: &[(&str, PathBuf)]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(&rustc).arg("-vV").stdin(Stdio::null()).output().context("rustc -vV")?;
    let mut lines = vec![String::from_utf8_lossy(&version.stdout).into_owned()];
    let is_relevant = |name: &str| VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut variables: Vec<String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| is_relevant(name) && name != "CARGO_TARGET_DIR")
        .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
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

fn protoc(paths: &Paths) -> PathBuf {
    paths.root().canonicalize().unwrap_or_default().join("scripts/protoc")
}

/// The backends of the running build that the revision has; it may be older than some of them.
fn features_of(worktree: &Worktree) -> Vec<&'static str> {
    let manifest = std::fs::read_to_string(worktree.path().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap_or_default();
    let own = manifest.get("features").and_then(toml::Value::as_table);
    let is_known = |name: &str| own.is_some_and(|own| own.contains_key(name));
    registry::features().into_iter().filter(|name| is_known(name)).collect()
}
