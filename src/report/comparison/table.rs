//! The table for a terminal.

use comfy_table::{Cell, CellAlignment};

use super::wording::{
    advice_about_refused, change, changes, difference, footnotes, headline, interval, side, signed_percent,
};
use crate::compare::{ComparedCase, Comparison, LatencyChange, Verdict};
use crate::report::ranking::latency as shown_latency;
use crate::report::ruled_table;

const NUMBERS: std::ops::RangeInclusive<usize> = 2..=6;

/// A row a case that both sides have measured, then what else changed, what was refused, and the conclusion.
pub fn render(comparison: &Comparison) -> String {
    let mut text = format!("\nbase       {}\ncandidate  {}\n", side(&comparison.base), side(&comparison.candidate));
    let mut table = ruled_table(&["", "case", "base", "candidate", "change", "interval", "floor", "verdict"]);
    let mut has_rows = false;
    for (case, latency) in comparison.cases.iter().filter_map(|case| Some((case, case.latency.as_ref()?))) {
        table.add_row(cells(case, latency));
        has_rows = true;
    }
    for column in NUMBERS {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if has_rows {
        text.push_str(&format!("\n{table}\n"));
    }
    let others: Vec<String> = changes(comparison).map(|(id, found)| format!("  {id}: {}\n", change(found))).collect();
    if !others.is_empty() {
        text.push_str(&format!("\n{}", others.concat()));
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

fn cells(case: &ComparedCase, latency: &LatencyChange) -> Vec<Cell> {
    let mark = match latency.verdict {
        Verdict::Slower => "▲",
        Verdict::Faster => "▼",
        Verdict::Same | Verdict::CannotSay => "",
    };
    let cells = [
        mark.to_owned(),
        case.id.clone(),
        shown_latency(Some(latency.base_ms)),
        shown_latency(Some(latency.candidate_ms)),
        signed_percent(latency.interval.ratio),
        interval(latency),
        format!("{:.1} %", 100.0 * latency.floor),
        latency.verdict.to_string(),
    ];
    cells.into_iter().map(Cell::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn every_pair_has_a_row_and_the_rest_a_line() {
        let text = render(&comparison());
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
    }
}
