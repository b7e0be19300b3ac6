//! A revision, checked out into a worktree of its own and built there with the features of the running executable.
//!
//! All builds share one target folder, `<target>/inferbench/duel/build/`, so that the second one compiles little but the
//! package itself. What is built is kept as `executables/<commit>-<features>`; the worktree is removed after the duel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::wait;
use crate::paths::Paths;

const LINES_SHOWN: usize = 25;
/// Folders of `models/` into which users put files that git need not know.
const USERS_OWN: [&str; 3] = ["models/exported", "models/trained", "models/quantized"];

/// A checked-out revision; removed when it is dropped.
pub struct Worktree {
    repository: PathBuf,
    path: PathBuf,
}

/// The commit of a revision; `None` where there is no such revision.
///
/// # Errors
/// There is no git, or no repository.
pub fn commit(repository: &Path, revision: &str) -> Result<Option<String>, String> {
    if git(repository, &["rev-parse", "--git-dir"])?.is_err() {
        return Err(format!("{} is no git repository: there are no revisions to compare", repository.display()));
    }
    let name = format!("{revision}^{{commit}}");
    Ok(git(repository, &["rev-parse", "--verify", "--quiet", &name])?.ok())
}

/// The executable of a commit and its worktree; `None` where the user stopped the build.
///
/// # Errors
/// The commit cannot be checked out or does not build; the message ends with the last lines of the build.
pub fn build(paths: &Paths, name: &str, commit: &str) -> Result<Option<(PathBuf, Worktree)>, String> {
    let duels = paths.duels();
    let worktree = Worktree::add(paths, &duels.join("worktrees").join(commit), commit)?;
    let features = features_of(&worktree);
    let named_features = if features.is_empty() { "no-backend".to_owned() } else { features.join("+") };
    let executable = duels.join("executables").join(format!("{commit}-{named_features}"));
    if executable.is_file() {
        return Ok(Some((executable, worktree)));
    }
    let log = duels.join(format!("build-{commit}.log"));
    let named = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| format!("{}: {error}", path.display())
    };
    eprintln!("building {name} ({}; what it says goes to {})", &commit[..12.min(commit.len())], log.display());
    let target = duels.join("build");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--bin", "inferbench", "--no-default-features", "--features"]);
    cargo.arg(features.join(",")).current_dir(worktree.path()).env("CARGO_TARGET_DIR", &target);
    // From one place for all revisions: cargo compiles a native crate anew when such a path changes.
    for (variable, path) in [("LIBTORCH", paths.native().join("libtorch")), ("PROTOC", protoc(paths))] {
        if std::env::var_os(variable).is_none() && path.exists() {
            cargo.env(variable, path);
        }
    }
    let file = fs::File::create(&log).map_err(named(&log))?;
    let child = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
    let child = child.map_err(|error| format!("cargo, to build {name}: {error}"))?;
    let Some(status) = wait(child).map_err(named(&log))? else { return Ok(None) };
    if !status.success() {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        return Err(format!("{name} does not build ({status}):\n{last}"));
    }
    let partial = executable.with_extension("partial");
    fs::create_dir_all(duels.join("executables")).map_err(named(&executable))?;
    fs::copy(target.join("release/inferbench"), &partial).map_err(named(&partial))?;
    fs::rename(&partial, &executable).map_err(named(&executable))?;
    let _ = fs::remove_file(&log);
    Ok(Some((executable, worktree)))
}

impl Worktree {
    fn add(paths: &Paths, path: &Path, commit: &str) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        let root = paths.root().canonicalize().map_err(|error| format!("{}: {error}", paths.root().display()))?;
        let worktree = Worktree { repository: root.clone(), path: path.to_owned() };
        // What a killed duel has left.
        worktree.remove();
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(named)?;
        let text = path.to_string_lossy();
        git(&root, &["worktree", "add", "--detach", "--quiet", "--force", &text, commit])?
            .map_err(|why| format!("git worktree add {text} {commit}: {why}"))?;
        let native = path.join(".native");
        if paths.native().is_dir() && !native.exists() {
            symlink(root.join(".native"), native).map_err(named)?;
        }
        // One link a model: a revision with other weights replaces its own link and leaves the others' files alone.
        link_missing(&paths.prepared(), &path.join(".prepared"), "").map_err(named)?;
        for folder in USERS_OWN {
            // What git knows there is the other revision's, and this one has its own.
            let known = git(&root, &["ls-files", folder])?.unwrap_or_default();
            link_missing(&root.join(folder), &path.join(folder), &known).map_err(named)?;
        }
        Ok(worktree)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn remove(&self) {
        if self.path.exists() {
            let _ = git(&self.repository, &["worktree", "remove", "--force", "--force", &self.path.to_string_lossy()]);
            let _ = fs::remove_dir_all(&self.path);
        }
        let _ = git(&self.repository, &["worktree", "prune"]);
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Links what is in one folder and not in the other.
fn link_missing(from: &Path, to: &Path, but: &str) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs::create_dir_all(to)?;
    for entry in entries.flatten() {
        let link = to.join(entry.file_name());
        let is_left_out = but.lines().any(|path| Path::new(path).file_name() == Some(&entry.file_name()));
        if !is_left_out && !link.exists() {
            symlink(entry.path().canonicalize()?, link)?;
        }
    }
    Ok(())
}

fn protoc(paths: &Paths) -> PathBuf {
    paths.root().canonicalize().unwrap_or_default().join("scripts/protoc")
}

/// The backends of the running build that the revision has; it may be older than some of them.
fn features_of(worktree: &Worktree) -> Vec<&'static str> {
    let features = [
        (cfg!(feature = "ort"), "ort"),
        (cfg!(feature = "tch"), "tch"),
        (cfg!(feature = "candle"), "candle"),
        (cfg!(feature = "tract"), "tract"),
        (cfg!(feature = "openvino"), "openvino"),
    ];
    let manifest = fs::read_to_string(worktree.path().join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = toml::from_str(&manifest).unwrap_or_default();
    let own = manifest.get("features").and_then(toml::Value::as_table);
    let is_known = |name: &str| own.is_some_and(|own| own.contains_key(name));
    features.into_iter().filter(|(has, name)| *has && is_known(name)).map(|(_, name)| name).collect()
}

/// What git prints, or what it complains of.
///
/// # Errors
/// There is no git.
fn git(repository: &Path, arguments: &[&str]) -> Result<Result<String, String>, String> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}
