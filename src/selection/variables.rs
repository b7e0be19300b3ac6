//! Command lines whose flags have environment variables of the same names.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Id, Parser};

/// Parses arguments. `INFERBENCH_*` variables give the flags that are neither given nor excluded by a given flag. Ends
/// the process with a message if an argument is wrong.
pub fn parse_with_variables<T: Parser>(arguments: impl IntoIterator<Item = OsString>) -> T {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = without_empty_variables(T::command());
    // The second parsing below reports wrong arguments.
    if let Ok(said) = command.clone().ignore_errors(true).try_get_matches_from(&arguments) {
        command = without_excluded_variables(command, &said);
    }
    let matches = command.get_matches_from(arguments);
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The command without the variables of flags that conflict with a flag on the command line, which overrides variables.
fn without_excluded_variables(command: Command, said: &ArgMatches) -> Command {
    let is_said = |flag: &Arg| said.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
    let mut excluded: Vec<Id> = Vec::new();
    for flag in command.get_arguments() {
        let others = command.get_arg_conflicts_with(flag);
        if is_said(flag) {
            excluded.extend(others.iter().map(|other| other.get_id().clone()));
        } else if others.into_iter().any(is_said) {
            excluded.push(flag.get_id().clone());
        }
    }
    let command = command.mut_args(|arg| if excluded.contains(arg.get_id()) { arg.env(None::<&str>) } else { arg });
    let Some((name, said)) = said.subcommand() else { return command };
    command.mut_subcommands(|own| if own.get_name() == name { without_excluded_variables(own, said) } else { own })
}

/// The command without the variables that are set but empty: these count as unset.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |variable: &OsStr| std::env::var_os(variable).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&str>) } else { arg })
        .mut_subcommands(without_empty_variables)
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn what_is_said_on_the_command_line_goes_before_variables_that_it_excludes() {
        // `PATH` is set wherever tests run.
        let flag = |name: &'static str| Arg::new(name).long(name);
        let whole = flag("whole").action(ArgAction::SetTrue).conflicts_with("part");
        let inner = Command::new("inner").args([flag("part").env("PATH"), whole, flag("other").env("PATH")]);
        let outer = Command::new("outer").no_binary_name(true).subcommand(inner);
        let sources = |words: &[&str]| {
            let said = outer.clone().ignore_errors(true).try_get_matches_from(words).unwrap();
            let found = without_excluded_variables(outer.clone(), &said).try_get_matches_from(words)?;
            let (_, found) = found.subcommand().unwrap();
            Ok::<_, clap::Error>(["part", "other"].map(|name| found.value_source(name)))
        };
        let (variable, line) = (Some(ValueSource::EnvVariable), Some(ValueSource::CommandLine));
        assert_eq!(sources(&["inner"]).unwrap(), [variable, variable]);
        assert_eq!(sources(&["inner", "--whole"]).unwrap(), [None, variable]);
        assert_eq!(sources(&["inner", "--part", "a"]).unwrap(), [line, variable]);
        assert!(sources(&["inner", "--whole", "--part", "a"]).is_err() && sources(&["inner", "--none"]).is_err());
    }
}
