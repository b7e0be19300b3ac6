//! The comparison for a terminal.

use super::figures;
use super::wording::{
    advice_about_refused, change, changes, difference, footnotes, headline, measure_again, side, small_changes, table,
};
use crate::compare::Comparison;

/// A row for each pair that was compared, their other figures, then the other changes, the refused pairs, the footnotes, and the conclusion.
pub fn render(comparison: &Comparison, columns: &[String]) -> String {
    let mut text = format!("\nbase       {}\ncandidate  {}\n", side(&comparison.base), side(&comparison.candidate));
    let table = table(comparison, |_| true);
    if let Some(advice) = measure_again(comparison) {
        text.push_str(&format!("\n{advice}\n"));
    } else if !table.is_empty() {
        text.push_str(&format!("\n{}", table.terminal()));
        let figures = figures::table(comparison, columns);
        if !figures.is_empty() {
            text.push_str(&format!("\n{}", figures.terminal()));
        }
    }
    let changes = changes(comparison).map(|(id, found)| format!("  {id}: {}\n", change(found)));
    let lines: String = small_changes(comparison).iter().map(|line| format!("  {line}\n")).chain(changes).collect();
    if !lines.is_empty() {
        text.push_str(&format!("\n{lines}"));
    }
    if let Some(advice) = advice_about_refused(comparison) {
        text.push('\n');
        for refused in &comparison.refused {
            let differences: Vec<String> = refused.differences.iter().map(difference).collect();
            text.push_str(&format!("  {}: refused: {}\n", refused.id, differences.join("; ")));
        }
        text.push_str(&format!("  {advice}\n"));
    }
    let footnotes = footnotes(comparison);
    if !footnotes.is_empty() {
        text.push_str(&format!("\n{}\n", footnotes.join("\n")));
    }
    text.push_str(&format!("\n{}\n", headline(comparison)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn every_pair_has_a_row_and_the_rest_a_line() {
        let text = render(&comparison(), &[]);
        let line =
            |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
        let slower = line("m/ort-cpu-f32/1 ");
        assert!(slower.contains('▲') && slower.contains("2.40 ms") && slower.contains("+20.0 %"), "{slower}");
        assert!(slower.contains("+17.0 … +23.0 %") && slower.trim_end().ends_with("slower"), "{slower}");
        assert!(line("m/ort-cpu-f32/8 ").trim_end().ends_with("cannot-say"));
        assert!(line("m/ort-cpu-f32/16:").contains("status ok → failed"));
        assert!(line("m/tch-cpu-f32/1:").contains("refused: library: 1.0 ↔ 2.0"));
        assert!(line("base ").contains("main (run main-run), commit 0123456789ab"));
        assert!(line("candidate  new").ends_with(", changed"));
        assert!(text.trim_end().ends_with("1 case refused"), "{text}");
        assert!(line("m/ort-cpu-f32/4:").contains("a sure change of +0.0 %, within the tolerance of 5 %"), "{text}");
    }

    #[test]
    fn without_any_verdict_there_is_no_table_of_verdicts() {
        let mut noisy = comparison();
        for latency in noisy.cases.iter_mut().filter_map(|case| case.latency.as_mut()) {
            latency.floor = 5.02;
        }
        let text = render(&noisy, &[]);
        assert!(text.contains("measure again: equal code differs by up to 502 % here"), "{text}");
        assert!(!text.contains('─') && !text.contains('▲'), "{text}");
        let markdown = crate::report::comparison::markdown::render(&noisy, &[]);
        assert!(markdown.contains("measure again") && !markdown.contains("| case |"), "{markdown}");
    }
}
