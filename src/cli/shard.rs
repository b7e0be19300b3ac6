//! `inferbench shard`: a suite as parts for several machines.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
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
use crate::selection::{EffortArguments, Selection};

/// Divide a suite into parts of equal expected time
#[derive(Args)]
#[command(
    after_help = "All backends of a model are in one part, so that they are compared on one machine. `inferbench run --suite \
        parts/2-of-4.toml` measures a part, and `inferbench merge` puts the parts together.\n\n\
        Examples:\n  inferbench shard --count 4 --suite small\n  \
        inferbench shard --count 4 --suite small --anchor digits/ort-cpu-f32/1 --output parts\n  \
        inferbench shard --count 3 --model resnet50 --anchor resnet50/ort-cpu-f32/1 --equal-machines"
)]
pub struct Arguments {
    /// The number of parts
    #[arg(long, value_name = "N")]
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
    /// Let no part mix kinds of device, such as cpu and cuda
    #[arg(long, value_enum)]
    by: Option<By>,
    /// If there are fewer models than parts, divide the backends of models, too, because the machines are equal. `merge` ranks the rows together
    /// only if the calibrations of the machines and the anchor show no difference
    #[arg(long, requires = "anchor")]
    equal_machines: bool,
    /// The id of a case that every part measures, so that the machines can be compared
    #[arg(long, value_name = "CASE")]
    anchor: Option<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    MachineKind,
}

impl DivisionArguments {
    /// Returns true if failed cases do not change the exit code (`--allow-failed`).
    pub fn may_fail(&self) -> bool {
        self.effort.allow_failed
    }

    /// The suite, divided into so many parts of equal expected time.
    ///
    /// # Errors
    /// It cannot be divided so.
    pub fn divide(&self, paths: &Paths, count: usize) -> Result<Suite> {
        let division = Division {
            count,
            is_by_device: self.by.is_some(),
            has_equal_machines: self.equal_machines,
            anchor: self.anchor.clone(),
        };
        let request = Request::of(self.selection.clone(), &self.effort, None);
        divide(paths, &request, &division, |cases| predicted_latencies(paths, cases))
    }
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let suite = arguments.of.divide(&Paths::find(), arguments.count)?;
    let files = write(&suite, &arguments.output)?;
    listing(suite.shard.iter(), &files).print(arguments.format);
    Ok(exit_codes::OK)
}

/// Writes the suite file of each part.
pub fn write(suite: &Suite, folder: &Path) -> Result<Vec<PathBuf>> {
    fs_err::create_dir_all(folder)?;
    // Paths in a suite file are relative to its folder.
    let absolute = suite.clone().with_paths_in(&std::env::current_dir()?);
    let mut files = Vec::new();
    for shard in suite.shard.iter().flat_map(|shard| (1..=shard.parts.len()).map(move |index| (index, shard))) {
        let shard = Shard { index: shard.0, ..shard.1.clone() };
        let file = folder.join(format!("{}.toml", shard.name()));
        let of_part = Suite { shard: Some(shard), ..absolute.clone() };
        write_whole(&file, toml::to_string(&of_part)?.as_bytes())?;
        files.push(file);
    }
    Ok(files)
}

fn listing<'a>(shard: impl Iterator<Item = &'a Shard>, files: &[PathBuf]) -> Listing {
    let texts = ["part", "file", "device"].map(Column::text);
    let mut table = Table::new(texts.into_iter().chain(["cases", "expected"].map(Column::number)));
    let mut objects = Vec::new();
    for ((place, part), file) in shard.flat_map(|shard| shard.parts.iter().enumerate()).zip(files) {
        let (device, minutes) =
            (part.device.clone().unwrap_or_default(), format!("{:.1} min", part.seconds as f64 / 60.0));
        let (number, file) = ((place + 1).to_string(), file.display().to_string());
        table.row([number, file.clone(), device, part.cases.len().to_string(), minutes]);
        objects.push(json!({
            "part": place + 1, "file": file, "device": part.device, "cases": part.cases, "expected_seconds": part.seconds,
        }));
    }
    Listing { table, objects: objects.into() }
}
