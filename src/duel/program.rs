//! What a name on the command line means: the running executable, another one, a suite, a model's file, or a revision.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::build::{BuildFlags, build, build_bench, keep_executable};
use super::worktree::{Worktree, find_commit};
use crate::backend::registry;
use crate::catalogue::is_graph;
use crate::compare::Program;
use crate::definition::{Suite, SuiteModel, usable_name};
use crate::fixture::sha256_of_file;
use crate::harness::own_executable;
use crate::paths::Paths;

enum Meaning {
    /// The bench of the package in the current folder, as its files are now.
    WorkingTree,
    /// The running executable, with the suite of this file if there is one.
    Running(Option<PathBuf>),
    Executable(PathBuf),
    Commit(String),
}

/// Finds the programs of a duel and builds the revisions among them. Names of one commit share what is built of it. The
/// worktrees must stay as long as the programs are used.
///
/// # Errors
/// A name means nothing, a revision does not build, or the user stops it ([`Interrupted`](crate::harness::Interrupted)).
pub fn resolve_all(paths: &Paths, names: &[String], flags: &BuildFlags) -> Result<(Vec<Program>, Vec<Worktree>)> {
    let flags = &flags.with_file(paths.root())?;
    let mut suites = SuitesOfFiles::new(paths);
    // All names are looked up before a build that may take minutes.
    let meanings = names.iter().map(|name| meaning(paths, name, &mut suites)).collect::<Result<Vec<Meaning>>>()?;
    let own_root = fs_err::canonicalize(paths.root())?;
    let (mut programs, mut worktrees) = (Vec::<Program>::new(), Vec::new());
    for (name, meaning) in names.iter().zip(meanings) {
        programs.push(match meaning {
            Meaning::WorkingTree => {
                program(name, build_bench(paths, name, paths.root(), flags)?, own_root.clone(), None)?
            }
            Meaning::Running(suite) => program(name, copy_of_running(paths)?, own_root.clone(), suite)?,
            Meaning::Executable(path) => program(name, path, own_root.clone(), None)?,
            Meaning::Commit(commit) => match programs.iter().find(|other| other.commit.as_ref() == Some(&commit)) {
                Some(other) => Program { name: name.clone(), ..other.clone() },
                None => {
                    let worktree = Worktree::add(paths, &commit)?;
                    let executable = build(paths, name, &commit, &worktree, flags)?;
                    let built = program(name, executable, worktree.project().to_owned(), None)?;
                    worktrees.push(worktree);
                    Program { commit: Some(commit), ..built }
                }
            },
        });
    }
    Ok((programs, worktrees))
}

/// The running executable as a program.
///
/// # Errors
/// It cannot be copied.
pub fn running(paths: &Paths) -> Result<Program> {
    program(".", copy_of_running(paths)?, fs_err::canonicalize(paths.root())?, None)
}

/// Suites of one model's file each. All of them have the name of the first file, since cases are paired by their names.
struct SuitesOfFiles<'a> {
    paths: &'a Paths,
    name: Option<String>,
}

impl<'a> SuitesOfFiles<'a> {
    fn new(paths: &'a Paths) -> Self {
        SuitesOfFiles { paths, name: None }
    }

    fn write(&mut self, file: &Path) -> Result<PathBuf> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let name = self.name.get_or_insert_with(|| usable_name(stem.split('.').next().unwrap_or_default()));
        let model = SuiteModel { path: Some(file.to_owned()), ..SuiteModel::from(name.as_str()) };
        let backends = registry::built().into_iter().map(str::to_owned).collect();
        let suite = Suite { models: vec![model], ..Suite::new(name, backends) };
        let folder = self.paths.duels().join("files");
        let text = toml::to_string(&suite)?;
        let hash: String = Sha256::digest(&text).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("{hash}.toml"));
        fs_err::create_dir_all(&folder)?;
        fs_err::write(&path, text)?;
        Ok(path)
    }
}

fn meaning(paths: &Paths, name: &str, suites: &mut SuitesOfFiles<'_>) -> Result<Meaning> {
    let path = Path::new(name);
    if name == "." {
        return Ok(if paths.is_of_other_package() { Meaning::WorkingTree } else { Meaning::Running(None) });
    }
    if path.is_file() {
        let path = fs_err::canonicalize(path)?;
        if is_graph(&path) {
            return Ok(Meaning::Running(Some(suites.write(&path)?)));
        }
        let is_suite = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        let is_executable = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
        return match (is_suite, is_executable) {
            (true, _) => Ok(Meaning::Running(Some(path))),
            (false, true) => Ok(Meaning::Executable(path)),
            (false, false) => {
                bail!("{name} is a file, but neither an executable nor a suite (.toml, .json) nor a model (.onnx, .pt)")
            }
        };
    }
    ensure!(!is_graph(path), "there is no file {name}");
    match find_commit(paths.root(), name)? {
        Some(commit) => Ok(Meaning::Commit(commit)),
        None => bail!(
            "{name:?} is no revision of {}, no executable, no suite and no model's file; `.` is what is there now",
            paths.root().display()
        ),
    }
}

fn program(name: &str, executable: PathBuf, root: PathBuf, suite: Option<PathBuf>) -> Result<Program> {
    Ok(Program {
        name: name.to_owned(),
        commit: None,
        sha256: sha256_of_file(&executable)?,
        suite_sha256: suite.as_deref().map(sha256_of_file).transpose()?,
        suite,
        executable,
        root,
    })
}

/// Copies the running executable: a build in the middle of the duel may put another one in its place.
fn copy_of_running(paths: &Paths) -> Result<PathBuf> {
    let own = own_executable()?;
    let copy = paths.duels().join("executables").join(&sha256_of_file(&own)?[..40]);
    if !copy.is_file() {
        keep_executable(&own, &copy)?;
    }
    Ok(copy)
}
