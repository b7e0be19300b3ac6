//! Markdown, for a comment on a pull request: what changed comes first, the rest is folded.

use super::wording::{
    advice_about_refused, change, changes, difference, footnotes, headline, interval, side, signed_percent,
};
use crate::compare::{ComparedCase, Comparison, Verdict};
use crate::report::ranking::latency as shown_latency;

const HEADER: &str = "| case | base | candidate | change | interval | floor | verdict |\n\
    | --- | ---: | ---: | ---: | ---: | ---: | --- |\n";

/// The conclusion as a heading, a table of what is faster or slower, and everything else below.
pub fn render(comparison: &Comparison) -> String {
    let mut text = format!("### inferbench: {}\n\n", headline(comparison));
    text.push_str(&format!("Base {}; candidate {}.\n\n", side(&comparison.base), side(&comparison.candidate)));
    let is_changed = |case: &&ComparedCase| matches!(case.verdict(), Some(Verdict::Faster | Verdict::Slower));
    let rows = |wanted: bool| -> Vec<String> {
        comparison.cases.iter().filter(|case| is_changed(case) == wanted).filter_map(row).collect()
    };
    let (changed, others) = (rows(true), rows(false));
    if !changed.is_empty() {
        text.push_str(&format!("{HEADER}{}\n", changed.concat()));
    }
    let lines: Vec<String> =
        changes(comparison).map(|(id, found)| format!("- `{id}`: {}\n", escape(&change(found)))).collect();
    if !lines.is_empty() {
        text.push_str(&format!("{}\n", lines.concat()));
    }
    if let Some(advice) = advice_about_refused(comparison) {
        for refused in &comparison.refused {
            let differences: Vec<String> = refused.differences.iter().map(difference).collect();
            text.push_str(&format!("- `{}`: refused: {}\n", refused.id, escape(&differences.join("; "))));
        }
        text.push_str(&format!("\n{advice}\n\n"));
    }
    if !others.is_empty() {
        let summary = super::wording::plural(others.len(), "case", "cases");
        text.push_str(&format!(
            "<details><summary>{summary} without a change that can be shown</summary>\n\n{HEADER}{}\n</details>\n\n",
            others.concat()
        ));
    }
    for line in footnotes(comparison) {
        text.push_str(&format!("{}  \n", escape(&line)));
    }
    text
}

fn row(case: &ComparedCase) -> Option<String> {
    let latency = case.latency.as_ref()?;
    let verdict = match latency.verdict {
        verdict @ (Verdict::Faster | Verdict::Slower) => format!("**{verdict}**"),
        verdict => verdict.to_string(),
    };
    Some(format!(
        "| `{}` | {} | {} | {} | {} | {:.1} % | {verdict} |\n",
        case.id,
        shown_latency(Some(latency.base_ms)),
        shown_latency(Some(latency.candidate_ms)),
        signed_percent(latency.interval.ratio),
        interval(latency),
        100.0 * latency.floor,
    ))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn what_changed_is_above_the_fold() {
        let text = render(&comparison());
        let fold = text.find("<details><summary>2 cases").unwrap();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        assert!(text.starts_with("### inferbench: regression: 1 slower"));
        assert!(place("| `m/ort-cpu-f32/1` | 2.00 ms | 2.40 ms | +20.0 % |") < fold);
        assert!(place("| **faster** |") < fold && place("- `m/ort-cpu-f32/16`: status ok → failed: a \\| b") < fold);
        assert!(place("| same |") > fold && place("| cannot-say |") > fold);
    }
}
