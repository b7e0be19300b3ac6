//! Recommendations as text for a terminal, Markdown, JSON and a section of a page.

use super::advice::{Advice, RunnerUp, rate_text};
use super::variants_output::{ratio, title_of};
use crate::compare::Verdict;
use crate::report::numbers::{fixed, latency, megabytes};
use crate::report::table::{Cell, Column, Table, wrapped};
use crate::report::{Format, escape, json, schema_of};

/// The name of the line with the command.
const DECIDE: &str = "to decide";

/// The recommendations as a text. `decide` has for each the command that would tell its first two apart, if there is one.
pub fn render(all: &[Advice], decide: &[Option<String>], format: Format) -> String {
    if format == Format::Json {
        return json(&all);
    }
    all.iter().zip(decide).map(|(advice, decide)| one(advice, decide.as_deref(), format)).collect()
}

fn one(advice: &Advice, decide: Option<&str>, format: Format) -> String {
    let runner_up = advice.runner_up.as_ref().map(|it| format!("{}: {}", it.name, it.why));
    let parts = [("runner-up", runner_up), ("confidence", advice.confidence.clone())];
    let of = |name: &'static str, lines: &[String]| lines.iter().map(|line| (name, line.clone())).collect::<Vec<_>>();
    let mut lines: Vec<(&str, String)> = parts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
    lines.extend(advice.batch_sizes.clone().map(|text| ("batch sizes", text)));
    lines.extend(advice.largest_batch.clone().map(|text| ("largest batch", text)));
    lines.extend(advice.predicted.iter().map(|it| ("predicted", it.text())));
    lines.extend(of("excluded", &advice.excluded));
    lines.extend(of("by a server", &advice.served));
    lines.extend(of("would change", &advice.would_change));
    lines.extend(decide.map(|command| (DECIDE, command.to_owned())));
    let title = title(advice);
    match format {
        Format::Markdown => {
            let line = |(name, text): &(&str, String)| format!("- {name}: {}\n", escape::markdown(text));
            let lines: String = lines.iter().map(line).collect();
            format!("### {}\n\n**{}**\n\n{lines}\n", escape::markdown(&title), escape::markdown(&advice.sentence))
        }
        _ => {
            // A command stays in one line, so that it can be copied.
            let line = |(name, text): &(&str, String)| match *name {
                DECIDE => format!("  {name:<14}{text}\n"),
                _ => wrapped(&format!("{name:<14}{text}"), 2),
            };
            let lines: String = lines.iter().map(line).collect();
            format!("{}\n{}{lines}", escape::terminal(&title), wrapped(&advice.sentence, 0))
        }
    }
}

/// The recommendations as a table for the end of a run. The sentence of a row is below the table, or a tooltip of the
/// page.
pub fn table(all: &[Advice]) -> Table {
    let texts = [Column::text("model"), Column::text("deploy").essential(), Column::number("p50").essential()];
    let others = [Column::number("throughput").minor(), Column::number("memory").minor(), Column::text("runner-up")];
    let of_two = [Column::number("its p50 ÷ best"), Column::text("confidence").essential()];
    let mut table = Table::new(texts.into_iter().chain(others).chain(of_two));
    for advice in all.iter().filter(|advice| advice.considered > 1) {
        let Some(deploy) = &advice.deploy else { continue };
        let second = advice.runner_up.as_ref();
        let cells: [Cell; 8] = [
            title(advice).into(),
            Cell::from(deploy.name.as_str()).strong(),
            deploy.latency_p50_ms.map(latency).into(),
            rate_text(deploy.tokens_per_second, deploy.samples_per_second).into(),
            deploy.memory_mb.map(megabytes).into(),
            second.map(|it| it.name.clone()).into(),
            second.and_then(times).into(),
            second.map(confidence).into(),
        ];
        table.row(cells).sentence(format!("{}: {}", title(advice), with_doubt(advice)));
    }
    table
}

/// `1.29 (1.25 … 1.33)`.
fn times(second: &RunnerUp) -> Option<String> {
    second.interval.as_ref().map(ratio).or(second.ratio.map(|ratio| fixed(ratio, 2)))
}

/// The confidence with which the first is better than the runner-up.
fn confidence(second: &RunnerUp) -> String {
    match second.verdict {
        Some(Verdict::CannotSay | Verdict::NotSlower) => "undecided",
        Some(Verdict::Same) => "95 %: both are as fast",
        Some(Verdict::Faster) => "95 %: it is faster, but larger or answers worse",
        Some(Verdict::Slower) => "95 %",
        None => "not tested",
    }
    .to_owned()
}

/// The first panel of a page: the same table. Empty if nothing is recommended.
pub fn section(all: &[Advice]) -> String {
    let table = table(all);
    if table.is_empty() {
        return String::new();
    }
    format!("<section id=\"deploy\">\n<h2>What to deploy</h2>\n{}</section>\n", table.html())
}

/// The JSON Schema of the recommendations.
pub fn schema() -> String {
    schema_of::<Vec<Advice>>("inferbench recommend: what to deploy")
}

/// The sentence, and the case that cannot be told apart from the recommended one, if there is one.
fn with_doubt(advice: &Advice) -> String {
    match advice.runner_up.as_ref().filter(|_| advice.is_undecided) {
        Some(other) => format!("{} But {} cannot be told apart from it.", advice.sentence, other.name),
        None => advice.sentence.clone(),
    }
}

fn title(advice: &Advice) -> String {
    title_of(&advice.work.case, advice.input_shape.as_ref())
}
