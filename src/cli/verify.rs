//! `inferbench verify`: runs each case once and compares its outputs; the compatibility matrix.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, print};
use crate::definition::{EffortArguments, Selection, Status};
use crate::exit_codes;
use crate::harness::{self, Manifest, Outcomes, Purpose, Request};

/// Run each case once and compare its outputs with the reference; print the compatibility matrix
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench verify --suite quick --format markdown")]
pub struct Arguments {
    /// Only the cases whose id matches this regular expression
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    #[command(flatten)]
    selection: Selection,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// How the matrix is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal
    Table,
    /// For a README
    Markdown,
    /// For scripts
    Json,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    verify(&arguments.selection, &EffortArguments::default(), arguments.filter.as_deref(), arguments.format)
}

/// Verifies the selected cases and prints the matrix.
///
/// # Errors
/// What was asked for is wrong.
pub fn verify(
    selection: &Selection,
    effort: &EffortArguments,
    filter: Option<&str>,
    format: Format,
) -> Result<u8, String> {
    let finished = harness::run(&Request {
        purpose: Purpose::Verify,
        selection: selection.clone(),
        effort: effort.clone(),
        criterion_arguments: std::iter::once("--bench".to_owned()).chain(filter.map(str::to_owned)).collect(),
        resume: false,
    })?;
    let Some(folder) = &finished.folder else { return Ok(exit_codes::OK) };
    Matrix::new(&folder.read_manifest()?, &folder.read_outcomes()).print(format)?;
    Ok(finished.exit_code)
}

/// Models down, contestants across; a cell sums up the batch sizes.
struct Matrix {
    contestants: Vec<String>,
    models: Vec<String>,
    cells: BTreeMap<(String, String), Cell>,
}

struct Cell {
    status: Status,
    message: Option<String>,
    /// The largest over the batch sizes, relative to the largest reference value.
    error: Option<f64>,
    is_verified: bool,
    batch_sizes: Vec<usize>,
}

impl Matrix {
    fn new(manifest: &Manifest, outcomes: &Outcomes) -> Self {
        let mut matrix = Matrix { contestants: Vec::new(), models: Vec::new(), cells: BTreeMap::new() };
        for planned in &manifest.cases {
            let id = planned.case.benchmark_id();
            let (status, message, error, is_verified) = match outcomes.finished.get(&planned.case.to_string()) {
                Some(outcome) => {
                    let observed = &outcome.observed;
                    let is_verified = observed.verified == Some(true);
                    (outcome.status, outcome.message.clone(), observed.max_rel_error, is_verified)
                }
                None => match &planned.shortfall {
                    Some(shortfall) => (shortfall.status, Some(shortfall.message.clone()), None, false),
                    None => (Status::Failed, Some("not reached".into()), None, false),
                },
            };
            if !matrix.models.contains(&id.group) {
                matrix.models.push(id.group.clone());
            }
            if !matrix.contestants.contains(&id.function) {
                matrix.contestants.push(id.function.clone());
            }
            let cell = Cell { status, message, error, is_verified, batch_sizes: vec![planned.case.batch_size] };
            match matrix.cells.get_mut(&(id.group.clone(), id.function.clone())) {
                Some(present) => present.join(cell),
                None => drop(matrix.cells.insert((id.group, id.function), cell)),
            }
        }
        matrix
    }

    fn print(&self, format: Format) -> Result<(), String> {
        match format {
            Format::Json => print(&(serde_json::to_string_pretty(&self.objects()).map_err(|e| e.to_string())? + "\n")),
            Format::Markdown => print(&self.markdown()),
            Format::Table => {
                let mut rows = Vec::new();
                for model in &self.models {
                    let cells = self.contestants.iter().map(|contestant| self.cell_text(model, contestant));
                    rows.push(std::iter::once(model.clone()).chain(cells).collect());
                }
                let mut header = vec!["model"];
                header.extend(self.contestants.iter().map(String::as_str));
                Listing { header: &header, rows, objects: serde_json::Value::Null }.print(ListFormat::Table)?;
                print(&self.reasons())
            }
        }
    }

    fn cell_text(&self, model: &str, contestant: &str) -> String {
        let Some(cell) = self.cells.get(&(model.to_owned(), contestant.to_owned())) else { return String::new() };
        match (cell.status, cell.error) {
            (Status::Ok, Some(error)) => format!("ok, error {error:.0e}"),
            (Status::Ok, None) => "runs, no reference".into(),
            (status, _) => status.to_string(),
        }
    }

    /// Why each cell that is not right is not.
    fn reasons(&self) -> String {
        let mut text = String::new();
        for ((model, contestant), cell) in &self.cells {
            if let Some(message) = &cell.message {
                text.push_str(&format!("{model} on {contestant}: {}: {message}\n", cell.status));
            }
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!("| model | {} |\n", self.contestants.join(" | "));
        text.push_str(&format!("| --- |{}\n", " --- |".repeat(self.contestants.len())));
        for model in &self.models {
            let cells: Vec<String> = self.contestants.iter().map(|name| self.cell_text(model, name)).collect();
            text.push_str(&format!("| {model} | {} |\n", cells.join(" | ")));
        }
        let reasons = self.reasons();
        if !reasons.is_empty() {
            text.push('\n');
            text.extend(reasons.lines().map(|line| format!("- {line}\n")));
        }
        text
    }

    fn objects(&self) -> serde_json::Value {
        let cells = self.cells.iter().map(|((model, contestant), cell)| {
            json!({
                "model": model, "contestant": contestant, "status": cell.status, "message": cell.message,
                "verified": cell.is_verified, "max_rel_error": cell.error, "batch_sizes": cell.batch_sizes,
            })
        });
        cells.collect()
    }
}

impl Cell {
    /// The worse of both; a status that is not `ok` stays.
    fn join(&mut self, other: Cell) {
        if self.status == Status::Ok && other.status != Status::Ok {
            self.status = other.status;
            self.message = other.message.map(|message| format!("batch {}: {message}", other.batch_sizes[0]));
        }
        self.error = match (self.error, other.error) {
            (Some(own), Some(others)) => Some(own.max(others)),
            (own, others) => own.or(others),
        };
        self.is_verified &= other.is_verified;
        self.batch_sizes.extend(other.batch_sizes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(status: Status, error: Option<f64>, batch_size: usize) -> Cell {
        let message = (status != Status::Ok).then(|| "why".to_owned());
        Cell { status, message, error, is_verified: status == Status::Ok, batch_sizes: vec![batch_size] }
    }

    #[test]
    fn one_bad_batch_size_spoils_the_cell() {
        let mut joined = cell(Status::Ok, Some(1e-7), 1);
        joined.join(cell(Status::WrongOutput, Some(0.5), 8));
        joined.join(cell(Status::Ok, Some(1e-6), 16));
        assert_eq!((joined.status, joined.error, joined.is_verified), (Status::WrongOutput, Some(0.5), false));
        assert_eq!(joined.message.as_deref(), Some("batch 8: why"));
        assert_eq!(joined.batch_sizes, [1, 8, 16]);
    }
}
