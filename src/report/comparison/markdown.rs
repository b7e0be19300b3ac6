//! The comparison as Markdown, for a comment on a pull request: the changes come first, the other cases are folded.

use super::figures;
use super::wording::{
    advice_about_refused, change, changes, difference, footnotes, headline, measure_again, plural, side, small_changes,
    table,
};
use crate::compare::{Comparison, Verdict};
use crate::report::escape::markdown as escape;

/// The conclusion as a heading, a table of the faster and slower cases, and everything else below.
pub fn render(comparison: &Comparison, columns: &[String]) -> String {
    let mut text = format!("### inferbench: {}\n\n", escape(&headline(comparison)));
    let (base, candidate) = (escape(&side(&comparison.base)), escape(&side(&comparison.candidate)));
    text.push_str(&format!("Base {base}; candidate {candidate}.\n\n"));
    let advice = measure_again(comparison);
    let changed = table(comparison, Verdict::is_change);
    if let Some(advice) = &advice {
        text.push_str(&format!("{}\n\n", escape(advice)));
    } else if !changed.is_empty() {
        text.push_str(&format!("{}\n", changed.markdown()));
    }
    let changes = changes(comparison).map(|(id, found)| format!("{id}: {}", change(found)));
    let lines: Vec<String> =
        small_changes(comparison).into_iter().chain(changes).map(|line| format!("- {}\n", escape(&line))).collect();
    if !lines.is_empty() {
        text.push_str(&format!("{}\n", lines.concat()));
    }
    if let Some(advice) = advice_about_refused(comparison) {
        for refused in &comparison.refused {
            let differences: Vec<String> = refused.differences.iter().map(difference).collect();
            text.push_str(&format!("- {}: refused: {}\n", escape(&refused.id), escape(&differences.join("; "))));
        }
        text.push_str(&format!("\n{advice}\n\n"));
    }
    let others = table(comparison, |verdict| !verdict.is_change());
    if advice.is_none() && !others.is_empty() {
        let is_other = |verdict: &Verdict| !verdict.is_change();
        let count = comparison.cases.iter().filter_map(|case| case.verdict()).filter(is_other).count();
        text.push_str(&format!(
            "<details><summary>{} without a change that can be shown</summary>\n\n{}\n</details>\n\n",
            plural(count, "case", "cases"),
            others.markdown()
        ));
    }
    let figures = figures::table(comparison, columns);
    if advice.is_none() && !figures.is_empty() {
        text.push_str(&format!("<details><summary>other figures</summary>\n\n{}\n</details>\n\n", figures.markdown()));
    }
    for line in footnotes(comparison) {
        text.push_str(&format!("{}  \n", escape(&line)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn what_changed_is_above_the_fold() {
        let text = render(&comparison(), &[]);
        let fold = text.find("<details><summary>2 cases").unwrap();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        assert!(text.starts_with("### inferbench: regression: 1 slower"));
        assert!(place("| ▲ | `m/ort-cpu-f32/1` | 2.00 ms | 2.40 ms | +20.0 % |") < fold);
        assert!(place("| **faster** |") < fold && place("- m/ort-cpu-f32/16: status ok → failed: a \\| b") < fold);
        assert!(place("| `m/ort-cpu-f32/1` | 3.00 → 3.60 ms | 10.0 → 12.0 ms |") > fold);
        assert!(place("| same |") > fold && place("| cannot-say |") > fold);
    }
}
