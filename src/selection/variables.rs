//! Command lines whose flags have environment variables of the same names.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error, Id, Parser};

/// Parses arguments. `INFERBENCH_*` variables give the flags that are neither given nor excluded by a given flag. Ends
/// the process with a message if an argument is wrong.
pub fn parse_with_variables<T: Parser>(arguments: impl IntoIterator<Item = OsString>) -> T {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = without_empty_variables(T::command());
    // The second parsing below reports wrong arguments.
    if let Ok(said) = command.clone().ignore_errors(true).try_get_matches_from(&arguments) {
        command = without_excluded_variables(command, &said);
    }
    let matches = command.clone().try_get_matches_from(&arguments);
    let matches = matches.unwrap_or_else(|error| naming_variable(error, &command, &arguments).exit());
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The error, which names the variable if a wrong value is not of the command line.
fn naming_variable(mut error: Error, command: &Command, arguments: &[OsString]) -> Error {
    let is_of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg).filter(|_| is_of_value) {
        // `--batch-sizes <N,…>`, `--shuffle[=<SEED>]`.
        let long = flag.trim_start_matches('-').split([' ', '[', '=']).next().unwrap_or_default();
        let is_said = |name: &str| {
            let mut words = arguments.iter().filter_map(|word| word.to_str()?.strip_prefix("--"));
            words.any(|word| word.split('=').next() == Some(name))
        };
        let variable = flags(command).into_iter().filter(|known| known.get_long() == Some(long)).find_map(|known| {
            let names = known.get_long_and_visible_aliases().unwrap_or_default();
            known.get_env().filter(|_| !names.into_iter().any(is_said))
        });
        if let Some(variable) = variable {
            let named = format!("{} ({flag})", variable.display());
            error.insert(ContextKind::InvalidArg, ContextValue::String(named));
        }
    }
    error
}

/// The flags of a command and of its subcommands.
fn flags(command: &Command) -> Vec<&Arg> {
    command.get_arguments().chain(command.get_subcommands().flat_map(flags)).collect()
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

    #[test]
    fn a_wrong_value_of_a_variable_is_said_with_the_name_of_the_variable() {
        let part = Arg::new("part").long("part").value_name("N").env("PATH").value_parser(clap::value_parser!(u8));
        let command = Command::new("outer").no_binary_name(true).subcommand(Command::new("inner").arg(part));
        let error = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let error = command.clone().try_get_matches_from(&words).unwrap_err();
            naming_variable(error, &command, &words).to_string()
        };
        assert!(error(&["inner"]).contains("' for 'PATH (--part <N>)': "), "{}", error(&["inner"]));
        assert!(error(&["inner", "--part=a"]).starts_with("error: invalid value 'a' for '--part <N>': "));
    }
}
