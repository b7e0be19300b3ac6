//! Builds a checked-out revision: inferbench with the features of the running executable, or the bench of another package.
//!
//! All builds share one target folder, `<target>/inferbench/duel/build/`, so that the second one compiles little but
//! the package itself. An executable of inferbench is kept as `executables/<commit>-<hash>`; the hash covers everything
//! else that the build depends on. For another package, only cargo knows this, since its dependencies may be folders,
//! so cargo is run each time.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::worktree::{Worktree, is_ignored};
use crate::backend::registry;
use crate::fixture::sha256_of_file;
use crate::harness::wait_for;
use crate::paths::{Paths, variable};

const LINES_SHOWN: usize = 25;
/// Prefixes of the environment variables that change the result of a build.
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

/// Builds a commit of inferbench, unless it is built already, and returns its executable.
///
/// # Errors
/// The commit does not build, and the message ends with the last lines of the build; or
/// [`Interrupted`](crate::harness::Interrupted).
pub fn build(paths: &Paths, name: &str, commit: &str, worktree: &Worktree) -> Result<PathBuf> {
    let duels = paths.duels();
    let features = features_of(worktree).join(",");
    let protoc = paths.root().canonicalize().unwrap_or_default().join("scripts/protoc");
    // The same paths for all revisions, since cargo recompiles a native crate when such a path changes.
    let native: Vec<(&str, PathBuf)> = [("LIBTORCH", paths.native().join("libtorch")), ("PROTOC", protoc)]
        .into_iter()
        .filter(|(variable, path)| std::env::var_os(variable).is_none() && path.exists())
        .collect();
    let mut cargo = cargo_in(paths.root(), worktree.project())?;
    let circumstances = circumstances(paths, &features, &native, &cargo)?;
    let executable = duels.join("executables").join(format!("{commit}-{}", short_sha256(&circumstances)));
    if executable.is_file() {
        return Ok(executable);
    }
    cargo.args(["build", "--release", "--locked", "--no-default-features", "--features", &features]).envs(native);
    let built = run_build(cargo, &duels, [name, &commit[..12.min(commit.len())]], ["bin", "inferbench"])?;
    keep_executable(&built, &executable)?;
    Ok(executable)
}

/// The bench that a duel builds in a package that uses inferbench; `[duel]` in its `inferbench.toml` has the same keys.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BuildFlags {
    /// The bench to build, in a package of your own [default: `inference`, or the only one]
    #[arg(long, value_name = "NAME")]
    pub bench: Option<String>,
    /// Features of that package, separated by commas
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub features: Vec<String>,
}

/// The file in a package with the settings of its duels.
const SETTINGS: &str = "inferbench.toml";

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    duel: BuildFlags,
}

impl BuildFlags {
    /// The flags, with the settings of the package's file for those that are not given.
    ///
    /// # Errors
    /// The file cannot be read, or has other keys.
    pub fn with_file(&self, root: &Path) -> Result<BuildFlags> {
        let file = root.join(SETTINGS);
        let own = match fs_err::read_to_string(&file) {
            Ok(text) => toml::from_str::<Settings>(&text).with_context(|| file.display().to_string())?.duel,
            Err(error) if error.kind() == ErrorKind::NotFound => BuildFlags::default(),
            Err(error) => return Err(error.into()),
        };
        let features = if self.features.is_empty() { own.features } else { self.features.clone() };
        Ok(BuildFlags { bench: self.bench.clone().or(own.bench), features })
    }

    /// The bench to build in a package.
    ///
    /// # Errors
    /// The manifest cannot be read, has no bench, or has several and none is chosen.
    fn bench_of(&self, project: &Path) -> Result<String> {
        if let Some(name) = &self.bench {
            return Ok(name.clone());
        }
        let file = project.join("Cargo.toml");
        let text = fs_err::read_to_string(&file)?;
        let manifest: toml::Table = toml::from_str(&text).with_context(|| file.display().to_string())?;
        let benches = manifest.get("bench").and_then(toml::Value::as_array).into_iter().flatten();
        let names: Vec<&str> = benches.filter_map(|bench| bench.get("name")?.as_str()).collect();
        match names.as_slice() {
            [] => bail!("{} has no [[bench]] to build", file.display()),
            [only] => Ok((*only).to_owned()),
            several if several.contains(&"inference") => Ok("inference".into()),
            several => bail!("{} has several benches: choose one by `--bench`: {}", file.display(), several.join(", ")),
        }
    }
}

/// The folder of a package of the workspace in the current folder.
///
/// # Errors
/// Cargo finds no workspace, or it has no such package.
pub fn package_folder(name: &str) -> Result<PathBuf> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version=1"]).output().context("cargo metadata")?;
    ensure!(output.status.success(), "--package {name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages.filter(|package| package["name"] == name).find_map(|it| it["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    folder.map(Path::to_owned).with_context(|| format!("the workspace has no package {name:?}"))
}

/// Builds the bench of a package that uses inferbench, and returns a copy of its executable.
///
/// # Errors
/// There is no such bench, it does not build, or [`Interrupted`](crate::harness::Interrupted).
pub fn build_bench(paths: &Paths, name: &str, project: &Path, flags: &BuildFlags) -> Result<PathBuf> {
    let bench = flags.bench_of(project)?;
    let mut cargo = cargo_in(paths.root(), project)?;
    cargo.args(["bench", "--no-run"]);
    if !flags.features.is_empty() {
        cargo.arg("--features").arg(flags.features.join(","));
    }
    let built = run_build(cargo, &paths.duels(), [name, &project.to_string_lossy()], ["bench", &bench])?;
    kept_copy(paths, &built)
}

/// Copies an executable, since a build during the duel may replace it.
pub fn kept_copy(paths: &Paths, executable: &Path) -> Result<PathBuf> {
    let copy = paths.duels().join("executables").join(&sha256_of_file(executable)?[..40]);
    if !copy.is_file() {
        keep_executable(executable, &copy)?;
    }
    Ok(copy)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Cargo in the folder of a project. A revision also gets the toolchain of `rustup override` for the working tree at `root`.
fn cargo_in(root: &Path, project: &Path) -> Result<Command> {
    let mut cargo = cargo();
    cargo.current_dir(project);
    if fs_err::canonicalize(root)? != fs_err::canonicalize(project)?
        && let Ok(output) = Command::new("rustup").args(["show", "active-toolchain"]).current_dir(root).output()
        && let Some((toolchain, _)) = String::from_utf8_lossy(&output.stdout).split_once(" (directory override for ")
    {
        cargo.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    Ok(cargo)
}

/// The settings of cargo that apply to the working tree at `root` and belong to no revision, since they lie above the
/// repository or git ignores them. Those that cargo also finds from the revision's folder, `project`, are left out.
pub fn settings_of_no_revision(root: &Path, project: &Path) -> Result<Vec<PathBuf>> {
    let (root, project) = (fs_err::canonicalize(root)?, fs_err::canonicalize(project)?);
    let is_users =
        |folder: &Path| folder.canonicalize().ok().is_some_and(|it| cargo_home().canonicalize().ok() == Some(it));
    let mut found = Vec::new();
    for folder in root.ancestors().filter(|folder| !project.starts_with(folder)).map(|folder| folder.join(".cargo")) {
        if let Some(settings) = settings_in(&folder).filter(|_| !is_users(&folder))
            && is_ignored(&root, &settings)?
        {
            found.push(settings);
        }
    }
    Ok(found)
}

/// The settings of cargo in a folder `.cargo`. If it has both files, cargo reads the first.
fn settings_in(folder: &Path) -> Option<PathBuf> {
    ["config", "config.toml"].map(|name| folder.join(name)).into_iter().find(|file| file.is_file())
}

fn cargo_home() -> PathBuf {
    let usual = || std::env::home_dir().unwrap_or_default().join(".cargo");
    variable("CARGO_HOME").map_or_else(usual, PathBuf::from)
}

/// Builds the target of this kind and name, and returns the path of its executable from cargo's output: a setting such
/// as `CARGO_BUILD_TARGET` changes it. Cargo's messages for people go to a file.
///
/// # Errors
/// The build fails, and the message ends with its last lines; or [`Interrupted`](crate::harness::Interrupted).
fn run_build(
    mut cargo: Command,
    duels: &Path,
    [name, source]: [&str; 2],
    [kind, target]: [&str; 2],
) -> Result<PathBuf> {
    fs_err::create_dir_all(duels)?;
    let [log, messages] = ["build.log", "build.json"].map(|file| duels.join(file));
    eprintln!("building {name} ({source}; cargo's messages go to {})", log.display());
    cargo.args(["--message-format=json-render-diagnostics", &format!("--{kind}"), target]);
    cargo.env("CARGO_TARGET_DIR", duels.join("build")).stdin(Stdio::null());
    cargo.stdout(fs_err::File::create(&messages)?.into_parts().0).stderr(fs_err::File::create(&log)?.into_parts().0);
    let status = wait_for(cargo.spawn().with_context(|| format!("cargo, to build {name}"))?)?;
    if !status.success() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        bail!("{name} does not build ({status}):\n{last}");
    }
    let _ = std::fs::remove_file(&log);
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_target = message["target"]["name"] == target && message["target"]["kind"][0] == kind;
        message["executable"].as_str().filter(|_| is_target).map(PathBuf::from)
    };
    let text = fs_err::read_to_string(&messages)?;
    text.lines().find_map(executable).with_context(|| format!("cargo built no {kind} {target:?}"))
}

/// Copies an executable to where it is kept, whole or not at all.
fn keep_executable(from: &Path, to: &Path) -> Result<()> {
    let partial = to.with_extension("partial");
    fs_err::create_dir_all(to.parent().unwrap_or(to))?;
    fs_err::copy(from, &partial)?;
    fs_err::rename(&partial, to)?;
    Ok(())
}

/// Everything that a build by `cargo` depends on, except the commit: features, compiler, flags, and the native libraries
/// that it links.
fn circumstances(paths: &Paths, features: &str, native: &[(&str, PathBuf)], cargo: &Command) -> Result<String> {
    let project = cargo.get_current_dir().unwrap_or(Path::new("."));
    let mut rustc = Command::new(variable("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(project).envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let version = rustc.arg("-vV").stdin(Stdio::null()).output().context("rustc -vV")?;
    let mut lines = vec![features.to_owned(), String::from_utf8_lossy(&version.stdout).into_owned()];
    // Flags may also be in cargo's settings: above the project, and the user's own.
    let folders = project.ancestors().map(|folder| folder.join(".cargo")).chain([cargo_home()]);
    let settings = folders.filter_map(|folder| settings_in(&folder));
    lines.extend(settings.filter_map(|file| std::fs::read_to_string(file).ok()));
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
pub fn short_sha256(text: &str) -> String {
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The features of the running build that the revision has, too. The revision may be older than some backends.
fn features_of(worktree: &Worktree) -> Vec<&'static str> {
    let manifest = std::fs::read_to_string(worktree.project().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap_or_default();
    let own = manifest.get("features").and_then(toml::Value::as_table);
    let is_known = |name: &str| own.is_some_and(|own| own.contains_key(name));
    registry::features().into_iter().filter(|name| is_known(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_above_the_repository_or_ignored_by_git_belong_to_no_revision() {
        let folder = tempfile::tempdir().unwrap();
        let above = fs_err::canonicalize(folder.path()).unwrap().join("above");
        let (root, elsewhere) = (above.join("repository/package"), folder.path().join("revision"));
        let (of_above, of_repository, of_package) =
            (above.join(".cargo/config.toml"), above.join("repository/.cargo/config"), root.join(".cargo/config.toml"));
        for file in [&of_above, &of_repository, &of_package, &elsewhere.join(".cargo/config.toml")] {
            fs_err::create_dir_all(file.parent().unwrap()).unwrap();
            fs_err::write(file, "").unwrap();
        }
        let git = Command::new("git").args(["init", "--quiet"]).current_dir(above.join("repository")).status();
        assert!(git.unwrap().success());
        assert_eq!(settings_of_no_revision(&root, &elsewhere).unwrap(), std::slice::from_ref(&of_above));
        fs_err::write(above.join("repository/.gitignore"), "/.cargo\n").unwrap();
        assert_eq!(settings_of_no_revision(&root, &elsewhere).unwrap(), [of_repository, of_above]);
        // Cargo finds them from there.
        assert_eq!(settings_of_no_revision(&root, &root).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn settings_that_are_there_and_cannot_be_read_are_an_error() {
        let (folder, flags) = (tempfile::tempdir().unwrap(), BuildFlags::default());
        assert_eq!(flags.with_file(folder.path()).unwrap(), flags);
        std::fs::write(folder.path().join(SETTINGS), [0xff]).unwrap();
        assert!(flags.with_file(folder.path()).is_err());
    }
}
