//! `inferbench shard`: a suite as parts for several machines.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use super::Listing;
use super::predict::predicted_latencies;
use crate::definition::{Shard, Suite};
use crate::exit_codes;
use crate::harness::{Division, Request, divide};
use crate::history::write_whole;
use crate::paths::Paths;
use crate::report::Format;
use crate::report::table::{Column, Table};
use crate::selection::values::count_from_one;
use crate::selection::{EffortArguments, Selection};

/// Divide a suite into parts of equal expected time
#[derive(Args)]
#[command(after_help = "All backends of a model are in one part, so that they are compared on one machine, unless \
        `--equal-machines` is given. `inferbench run --suite parts/2-of-4.toml` measures a part, and `inferbench merge` puts the parts together.\n\n\
        Examples:\n  inferbench shard --count 4 --suite small\n  \
        inferbench shard --count 4 --suite small --anchor digits/ort-cpu-f32/1 --output parts\n  \
        inferbench shard --count 3 --model resnet50 --batch-sizes 1,8 --anchor resnet50/ort-cpu-f32/1 --equal-machines")]
pub struct Arguments {
    /// The number of parts
    #[arg(long, value_name = "N", value_parser = count_from_one)]
    count: usize,
    /// The folder for the suite files of the parts
    #[arg(long, value_name = "FOLDER", default_value = "parts")]
    output: PathBuf,
    #[command(flatten)]
    of: DivisionArguments,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// What is divided, and how.
#[derive(Args, Clone, Debug)]
pub struct DivisionArguments {
    #[command(flatten)]
    division: Division,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub effort: EffortArguments,
}

impl DivisionArguments {
    /// The suite, divided into `count` parts of equal expected time, and the first part.
    ///
    /// # Errors
    /// It cannot be divided into so many parts, or a flag names an unknown backend.
    pub fn divide(&self, paths: &Paths, count: usize) -> Result<(Suite, Shard)> {
        let division = Division { count, ..self.division.clone() };
        let request = Request::of(self.selection.clone(), &self.effort, None);
        let suite = divide(paths, &request, &division, |cases| predicted_latencies(paths, cases))?;
        let first = suite.shard.clone().context("a divided suite has parts")?;
        Ok((suite, first))
    }
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let (suite, first) = arguments.of.divide(&Paths::find(), arguments.count)?;
    let files = write(&suite, &first, &arguments.output)?;
    listing(&first, &files).print(arguments.format);
    Ok(exit_codes::OK)
}

/// Writes the suite file of each part of a divided suite, of which `shard` is one.
pub fn write(suite: &Suite, shard: &Shard, folder: &Path) -> Result<Vec<PathBuf>> {
    fs_err::create_dir_all(folder)?;
    // Paths in a suite file are relative to its folder.
    let absolute = suite.clone().with_paths_in(&std::env::current_dir()?);
    let part = |shard: Shard| {
        let file = folder.join(format!("{}.toml", shard.name()));
        let of_part = Suite { shard: Some(shard), ..absolute.clone() };
        write_whole(&file, toml::to_string(&of_part)?.as_bytes())?;
        Ok(file)
    };
    (1..=shard.parts.len()).map(|index| part(Shard { index, ..shard.clone() })).collect()
}

fn listing(shard: &Shard, files: &[PathBuf]) -> Listing {
    let texts = ["part", "file", "device"].map(Column::text);
    let mut table = Table::new(texts.into_iter().chain(["cases", "expected"].map(Column::number)));
    let mut objects = Vec::new();
    for ((number, part), file) in (1..).zip(&shard.parts).zip(files) {
        let (device, minutes) = (part.device.as_deref(), format!("{:.1} min", part.seconds as f64 / 60.0));
        let (file, cases) = (file.display().to_string(), part.cases.len().to_string());
        table.row([number.to_string().as_str(), &file, device.unwrap_or_default(), &cases, &minutes]);
        objects.push(json!({
            "part": number, "file": file, "device": device, "cases": part.cases, "expected_seconds": part.seconds,
        }));
    }
    Listing { table, objects: objects.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(words: &[&str]) -> Result<Arguments, clap::Error> {
        Ok(<Cli as clap::Parser>::try_parse_from([&["shard"][..], words].concat())?.arguments)
    }

    #[test]
    fn there_is_a_part_at_least() {
        for (count, message) in [("0", "must be 1 or more"), ("x", "not a whole number; write 4")] {
            let error = parsed(&["--count", count]).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(message), "{error}");
        }
        assert_eq!(parsed(&["--count", "2"]).unwrap().count, 2);
    }

    #[test]
    fn a_backend_that_there_is_not_is_refused() {
        let arguments = parsed(&["--count", "1", "--backend", "null,nosuch"]).unwrap();
        let error = arguments.of.divide(&Paths::find(), 1).unwrap_err().to_string();
        assert!(error.starts_with("no backend \"nosuch\"; there are ort, tch"), "{error}");
    }
}
