//! One HTML file about a profile: summaries, an icicle with search and zoom, the timeline of a call, the memory, all rows, and the
//! difference of two cases. Like the page of a report, it requests nothing from anywhere.

use anyhow::Result;
use serde_json::{Value, json};

use super::timeline::spans;
use super::words::{heading, summary};
use crate::profile::Kind;
use crate::report::escape;
use crate::report::html::{CSV, DOM, NUMBERS, STYLE, THEME, inlined_json};
use crate::report::numbers::plural;
use crate::run_data::{CaseProfile, Profile, ProfileRow};

/// The files of the program, each after the files that it needs.
const PROGRAM: [&str; 12] = [
    DOM,
    NUMBERS,
    CSV,
    THEME,
    include_str!("page/choice.js"),
    include_str!("page/tree.js"),
    include_str!("page/words.js"),
    include_str!("page/shapes.js"),
    include_str!("page/icicle.js"),
    include_str!("page/timeline.js"),
    include_str!("page/rows.js"),
    include_str!("page/main.js"),
];

/// The page of a profile. It opens with the first case, or with the difference of two cases, given by their indices.
pub fn page(profile: &Profile, compared: Option<(usize, usize)>) -> Result<String> {
    let title = match profile.cases.as_slice() {
        // Criterion's stacks name their case, but not its model and backend.
        [one] if one.backend.is_empty() => format!("Where the time goes: {}", one.case_id),
        [one] => format!("Where the time goes: {} on {}", one.model, one.backend),
        several => format!("Where the time goes: {}", plural(several.len(), "case", "cases")),
    };
    let payload = json!({
        "title": title,
        "run_id": profile.run_id,
        "host_id": profile.host_id,
        "threads": profile.threads,
        "compared": compared,
        "cases": profile.cases.iter().map(case).collect::<Vec<_>>(),
        "failures": profile.failures,
    });
    Ok(format!(
        include_str!("page/page.html"),
        title = escape::html(&title),
        style = [STYLE, include_str!("page/page.css")].join("\n"),
        payload = inlined_json(&serde_json::to_string(&payload)?),
        program = PROGRAM.join("\n"),
    ))
}

/// A case with what the program cannot know: sentences, the kinds of operators, and spans as `[row, start, duration]`.
fn case(case: &CaseProfile) -> Value {
    let mut value = json!(case);
    value["run_id"] = json!(case.rows.first().map(|row| &row.run_id));
    value["summary"] = summary(case).into();
    value["heading"] = heading(case).into();
    value["spans"] = spans(case).iter().map(|span| json!([span.row, span.start_us, span.duration_us])).collect();
    value["rows"] = case.rows.iter().map(row).collect();
    value
}

fn row(row: &ProfileRow) -> Value {
    let mut value = json!(row);
    value["kind"] = json!(Kind::of(&row.operator));
    if let Value::Object(fields) = &mut value {
        fields.retain(|name, value| !value.is_null() && name != "run_id" && name != "case_id");
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{PROGRAM, page};
    use crate::run_data::{CaseProfile, Profile};

    #[test]
    fn the_program_can_stand_in_a_page() {
        assert!(PROGRAM.iter().all(|text| !text.contains("</script") && !text.contains("<!--")));
    }

    #[test]
    fn stacks_alone_are_titled_with_their_case() {
        let case = CaseProfile { case_id: "m/ort-cpu-f32/1".into(), ..CaseProfile::default() };
        let page = page(&Profile { cases: vec![case], ..Profile::default() }, None).unwrap();
        assert!(page.contains("<title>Where the time goes: m/ort-cpu-f32/1</title>"));
    }

    /// The page then has the failures only.
    #[cfg(feature = "charts")]
    #[test]
    fn a_profile_in_which_every_case_has_failed_shows_no_case() {
        const PAYLOAD: &str = "{ cases: [], failures: [{ case_id: 'm', message: 'killed' }] }";
        let document =
            format!("const document = {{ getElementById: () => ({{ textContent: JSON.stringify({PAYLOAD}) }}) }};");
        let source = [document.as_str(), include_str!("page/choice.js"), "shownCases().length"].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: u32 = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, 0);
    }

    #[cfg(feature = "charts")]
    #[test]
    fn a_bound_of_a_share_is_never_rounded_down() {
        const SCRIPT: &str =
            "[0.4, 0.104, 0.0501].map((upper) => shareOf({ corrected_upper_us: upper }, { plain_us: 1 })).join('; ')";
        let source = [super::NUMBERS, include_str!("page/words.js"), SCRIPT].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: String = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, "< 40 %; < 11 %; < 5.1 %");
    }

    /// The leaves of the tree of two cases are the rows of their difference.
    #[cfg(feature = "charts")]
    #[test]
    fn what_is_not_known_of_one_of_two_cases_has_no_difference() {
        const SCRIPT: &str = "(() => {
            const row = (kind, corrected_us, share) => ({ kind, operator: kind, corrected_us, share });
            const one = (share) => ({ name: 'm', rows: [row('matmul', 10, 0.1), row('outside', 5, share)] });
            const leaves = (shown) => allNodes(treeOf(shown)).filter((node) => node.children.length === 0);
            const kinds = (...shares) => leaves(shares.map(one)).map((node) => node.kind).join(' ');
            return [kinds(0.05, 0.05), kinds(0.05, undefined), kinds(undefined)].join('; ');
        })()";
        let source = [super::NUMBERS, include_str!("page/tree.js"), include_str!("page/words.js"), SCRIPT].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: String = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, "matmul outside; matmul; matmul outside");
    }
}
