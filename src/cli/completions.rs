//! `inferbench completions`: scripts that complete the command line in a shell.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Cli;
use crate::exit_codes;

/// Print a script that completes the command line in a shell
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench completions bash > ~/.local/share/bash-completion/completions/inferbench\n  \
        source <(inferbench completions zsh)\n  \
        inferbench completions fish > ~/.config/fish/completions/inferbench.fish"
)]
pub struct Arguments {
    #[arg(help = "The shell")]
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    print!("{}", script(arguments.shell)?);
    Ok(exit_codes::OK)
}

fn script(shell: Shell) -> Result<String> {
    // The scripts would offer hidden subcommands.
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let flags = clap::Command::new("inferbench").version(env!("CARGO_PKG_VERSION")).args(all.get_arguments());
    let mut script = Vec::new();
    generate(shell, &mut flags.subcommands(shown), "inferbench", &mut script);
    Ok(String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn bash_completes_subcommands_and_flags() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("inferbench");
        std::fs::write(&file, script(Shell::Bash).unwrap()).unwrap();
        let completed = |words: &str, place: usize| {
            let asked = format!(
                ". '{}'\nCOMP_WORDS=({words}); COMP_CWORD={place}\n\
                 _inferbench inferbench \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\necho \"${{COMPREPLY[@]}}\"",
                file.display()
            );
            let output = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(completed("inferbench due", 1), "duel");
        // A hidden subcommand.
        assert_eq!(completed("inferbench arm", 1), "");
        assert_eq!(completed("inferbench --output-d", 1), "--output-dir");
        assert_eq!(completed("inferbench --vers", 1), "--version");
        assert_eq!(completed("inferbench run --batch-s", 2), "--batch-sizes");
    }
}
