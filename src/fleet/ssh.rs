//! ssh: copies the program and its files to a machine, measures a part there, and fetches the results.
//!
//! Files are copied if their hash differs, which `sha256sum` finds on the other machine. That machine also needs `tar`,
//! a shell, and a C library that the executable runs with.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, ensure};
use walkdir::WalkDir;

use crate::catalogue::shell_word;
use crate::definition::Shard;
use crate::exit_codes;
use crate::fixture::sha256_of_file;
use crate::machine::files;
use crate::paths::{Paths, variable};
use crate::run_data::hidden;

/// A machine that can be reached by ssh, and the folder for inferbench there, relative to the user's home.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub folder: String,
}

/// The exit codes of a run that has come to its end. There are records even if outputs are wrong (1), no case was
/// measured (3) or cases failed (5).
const ENDED: [i32; 4] = [0, 1, 3, 5];

/// Measures a part on a machine, or continues it, and fetches the results into the folder of parts here. Each line that
/// the machine prints is shown after its name.
///
/// # Errors
/// The machine cannot be reached, or a command fails there. What was measured stays there, and the same command with
/// `--resume` continues.
pub fn measure(host: &Host, paths: &Paths, shard: &Shard, plan: &Path) -> Result<()> {
    let (name, folder) = (&host.name, host.place());
    let executable = std::env::current_exe().context("the path of this executable")?;
    let plan_file = format!("{}.toml", shard.name());
    let suite = format!("plan/{}/{plan_file}", shard.measurement());
    let mut files = vec![(executable, "inferbench".to_owned()), (plan.join(&plan_file), suite.clone())];
    let models = paths.models()?;
    // Outside of a checkout, a user's own models are not among the program's.
    let own = paths.users_models(&models).into_iter().filter(|folder| !folder.starts_with(&models));
    let own = own.filter_map(|folder| Some((format!("models/{}", folder.file_name()?.to_str()?), folder)));
    let folders = [("models", models.clone()), (".native", paths.native()), (".prepared", paths.prepared())];
    let folders = folders.map(|(top, path)| (top.to_owned(), path)).into_iter().chain(own);
    for (top, path) in folders.filter(|(_, path)| path.exists()) {
        for entry in WalkDir::new(&path).follow_links(true).sort_by_file_name() {
            let entry = entry.with_context(|| format!("{name}: copying"))?;
            if entry.file_type().is_file() {
                let relative = entry.path().strip_prefix(&path)?.display().to_string();
                files.push((entry.into_path(), format!("{top}/{relative}")));
            }
        }
    }
    host.copy(&files).with_context(|| format!("{name}: copying"))?;

    let run = format!(
        "cd {folder} && INFERBENCH_ROOT=\"$PWD\" exec ./inferbench run --suite {} --resume --noplot --with-parent",
        shell_word(&suite)
    );
    let mut running = host.ssh(&run).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    for line in running.stderr.take().into_iter().flat_map(lines_of) {
        eprintln!("{name}: {line}");
    }
    let status = running.wait()?;
    let has_ended = status.code().is_some_and(|code| ENDED.contains(&code));
    let target = paths.parts().join(shard.measurement());
    fs_err::create_dir_all(&target)?;
    let fetched = host.fetch(&format!("{folder}/target-reports/parts/{}", shard.measurement()), &shard.name(), &target);
    // What was refused there, such as other files, would be refused again.
    let is_refused = status.code() == Some(exit_codes::USAGE.into());
    let advice = if is_refused { "" } else { "; the same command with `--resume` goes on with it" };
    ensure!(has_ended, "{name}: the part did not come to its end ({status}){advice}");
    fetched.with_context(|| format!("{name}: fetching"))
}

/// The lines that are not empty, with a replacement character for bytes that are not UTF-8.
fn lines_of(output: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    let text = |line: Vec<u8>| String::from_utf8_lossy(&line).trim_end().to_owned();
    lines.map(text).filter(|line| !line.is_empty())
}

impl Host {
    /// The folder as a word for the shell of the machine.
    fn place(&self) -> String {
        let of_home = self.folder.strip_prefix("~/");
        of_home.map_or_else(|| shell_word(&self.folder), |rest| format!("~/{}", shell_word(rest)))
    }

    /// The program that runs `command` on the machine: `ssh`, or the one in `INFERBENCH_SSH` with its flags.
    fn ssh(&self, command: &str) -> Command {
        let own = variable("INFERBENCH_SSH").unwrap_or_else(|| "ssh".into());
        let own = own.to_string_lossy();
        let mut words = own.split_whitespace();
        let mut ssh = Command::new(words.next().unwrap_or("ssh"));
        // Nobody is there to type a password.
        ssh.args(words).args(["-oBatchMode=yes", "-oServerAliveInterval=15", &self.name, command]).stdin(Stdio::null());
        ssh
    }

    /// Copies the files that the machine lacks, or has with other content, to these names in its folder.
    fn copy(&self, files: &[(PathBuf, String)]) -> Result<()> {
        let line = |(path, name): &(PathBuf, String)| Ok(format!("{}  {name}\n", sha256_of_file(path)?));
        let sums = files.iter().map(line).collect::<Result<Vec<String>>>()?.concat();
        // In another language, it would not print `FAILED`.
        let check = format!(
            "mkdir -p {0} && cd {0} && command -v sha256sum >/dev/null && LC_ALL=C sha256sum --check 2>/dev/null | sed -n 's/: FAILED.*//p'",
            self.place()
        );
        let mut checking = self.ssh(&check).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = checking.stdin.take().context("ssh has no input")?;
        let writing = thread::spawn(move || input.write_all(sums.as_bytes()));
        let output = checking.wait_with_output()?;
        let is_written = writing.join().is_ok_and(|written| written.is_ok());
        ensure!(output.status.success() && is_written, "the machine cannot be reached by ssh, or has no sha256sum");
        let missing = String::from_utf8_lossy(&output.stdout);
        let missing: std::collections::BTreeSet<&str> = missing.lines().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let wanted: Vec<&(PathBuf, String)> =
            files.iter().filter(|(_, name)| missing.contains(name.as_str())).collect();
        let bytes: u64 = wanted.iter().filter_map(|(path, _)| path.metadata().ok()).map(|it| it.len()).sum();
        eprintln!("{}: copying {} files, {:.0} MB", self.name, wanted.len(), bytes as f64 / 1e6);
        let mut unpacking = self.ssh(&format!("tar -C {} -xf -", self.place())).stdin(Stdio::piped()).spawn()?;
        let sent = unpacking.stdin.take().context("ssh has no input").and_then(|input| send(input, &wanted));
        ensure!(unpacking.wait()?.success(), "the files were not unpacked; is the disk full?");
        sent
    }

    /// Fetches the folder `name` in `parent` into `target`: all of its runs, or none if the connection breaks.
    fn fetch(&self, parent: &str, name: &str, target: &Path) -> Result<()> {
        // A merge does not look into it.
        let partial = hidden(0o755).tempdir_in(target)?;
        let mut packing = self.ssh(&format!("tar -C {parent} -cf - {name}")).stdout(Stdio::piped()).spawn()?;
        let packed = packing.stdout.take().context("ssh has no output")?;
        let unpacked = Command::new("tar").arg("-C").arg(partial.path()).args(["-xf", "-"]).stdin(packed).status()?;
        ensure!(packing.wait()?.success() && unpacked.success(), "{parent}/{name} was not fetched completely");
        // Another machine may have begun the part: its runs stay.
        let part = target.join(name);
        fs_err::create_dir_all(&part)?;
        for entry in fs_err::read_dir(partial.path().join(name))? {
            let entry = entry?;
            let place = part.join(entry.file_name());
            if place.is_dir() {
                fs_err::remove_dir_all(&place)?;
            }
            fs_err::rename(entry.path(), place)?;
        }
        Ok(())
    }
}

/// Writes a tar archive of these files under their names on the other machine: `tar` follows links in a temporary
/// folder.
fn send(mut output: impl Write, files: &[&(PathBuf, String)]) -> Result<()> {
    let links = tempfile::tempdir()?;
    for (path, name) in files {
        let link = links.path().join(name);
        fs_err::create_dir_all(link.parent().unwrap_or(links.path()))?;
        let file = std::path::absolute(path)?;
        // Not every system lets each user make links.
        files::link(&file, &link).or_else(|_| fs_err::copy(&file, &link).map(drop))?;
    }
    let mut packing =
        Command::new("tar").arg("-C").arg(links.path()).args(["-chf", "-", "."]).stdout(Stdio::piped()).spawn()?;
    let mut packed = packing.stdout.take().context("tar has no output")?;
    std::io::copy(&mut packed, &mut output)?;
    ensure!(packing.wait()?.success(), "tar could not read all files");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_latin_1_does_not_end_the_output_of_a_machine() {
        let lines: Vec<String> = lines_of(b"[1/2] a\r\n\n \n  Ger\xe4t\n[2/2] b".as_slice()).collect();
        assert_eq!(lines, ["[1/2] a", "  Ger\u{fffd}t", "[2/2] b"]);
    }

    #[test]
    fn a_folder_is_one_word_for_the_shell_of_the_machine() {
        let place = |folder: &str| Host { name: "alpha".into(), folder: folder.into() }.place();
        assert_eq!(place(".cache/inferbench/fleet"), ".cache/inferbench/fleet");
        assert_eq!(place("my fleet"), "'my fleet'");
        assert_eq!(place("~/my fleet"), "~/'my fleet'");
    }
}
