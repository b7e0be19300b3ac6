//! Recommendations as text for a terminal, Markdown, JSON and a section of a page.

use super::advice::Advice;
use crate::definition::{Boundary, Phase, TimedOn};
use crate::report::{Format, escape, json, schema_of};

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
    lines.extend(of("would change", &advice.would_change));
    lines.extend(decide.map(|command| ("to decide", command.to_owned())));
    let title = title(advice);
    match format {
        Format::Markdown => {
            let line = |(name, text): &(&str, String)| format!("- {name}: {}\n", escape::markdown(text));
            let lines: String = lines.iter().map(line).collect();
            format!("### {}\n\n**{}**\n\n{lines}\n", escape::markdown(&title), escape::markdown(&advice.sentence))
        }
        _ => {
            let lines: String = lines.iter().map(|(name, text)| format!("  {name:<14}{text}\n")).collect();
            format!("{title}\n{}\n{lines}", advice.sentence)
        }
    }
}

/// A line for each recommendation, for the end of a run.
pub fn lines(all: &[Advice]) -> String {
    let recommended = all.iter().filter(|advice| advice.case_id.is_some() && advice.considered > 1);
    recommended.map(|advice| format!("{}: {}\n", title(advice), with_doubt(advice))).collect()
}

/// The first panel of a page: the same lines. Empty if nothing is recommended.
pub fn section(all: &[Advice]) -> String {
    let lines = lines(all);
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.lines().map(|line| format!("<li>{}</li>\n", escape::html(line))).collect();
    format!("<section id=\"deploy\">\n<h2>What to deploy</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

/// The JSON Schema of the recommendations.
pub fn schema() -> String {
    schema_of::<Vec<Advice>>("inferbench recommend: what to deploy")
}

/// The sentence, and whether another case is as likely the best.
fn with_doubt(advice: &Advice) -> String {
    match advice.runner_up.as_ref().filter(|_| advice.is_undecided) {
        Some(other) => format!("{} But {} cannot be told apart from it.", advice.sentence, other.name),
        None => advice.sentence.clone(),
    }
}

/// `digits · sequence length 128 · prefill`.
fn title(advice: &Advice) -> String {
    let parts = [
        Some(advice.model.clone()),
        advice.sequence_length.map(|length| format!("sequence length {length}")),
        advice.input_shape.as_ref().map(|shape| format!("inputs {shape}")),
        (advice.phase != Phase::Forward).then(|| advice.phase.to_string()),
        (advice.timed_on != TimedOn::Seeded).then(|| advice.timed_on.to_string()),
        (advice.boundary != Boundary::Compute).then(|| advice.boundary.to_string()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}
