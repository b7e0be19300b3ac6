//! One HTML file with everything in it: data, styles, program and chart library. It requests nothing from anywhere, and a
//! content security policy enforces that.

use anyhow::Result;

use super::escape;
use super::payload::Payload;

pub(super) const STYLE: &str = include_str!("page/style.css");

// Other pages use these, too.
pub(super) const DOM: &str = include_str!("page/dom.js");
pub(super) const NUMBERS: &str = include_str!("page/numbers.js");
pub(super) const CSV: &str = include_str!("page/csv.js");
pub(super) const THEME: &str = include_str!("page/theme.js");

/// The files that make and draw charts, each after the files that it needs. `--charts` runs them without a browser.
pub(super) const CHARTS: [&str; 12] = [
    DOM,
    NUMBERS,
    include_str!("page/selection.js"),
    include_str!("page/panels.js"),
    include_str!("page/batches.js"),
    include_str!("page/distributions.js"),
    include_str!("page/dots.js"),
    include_str!("page/front.js"),
    include_str!("page/losses.js"),
    include_str!("page/trend.js"),
    include_str!("page/cells.js"),
    include_str!("page/charts.js"),
];
/// The files that only a browser runs: filters, sections, the table.
const BROWSER: [&str; 8] = [
    THEME,
    include_str!("page/filters.js"),
    CSV,
    include_str!("page/sections.js"),
    include_str!("page/table.js"),
    include_str!("page/fleet.js"),
    include_str!("page/facts.js"),
    include_str!("page/main.js"),
];
pub(super) const LIBRARY: [&str; 2] = [include_str!("vendored/d3.min.js"), include_str!("vendored/plot.min.js")];
const LICENCES: [&str; 3] = [
    include_str!("vendored/d3.LICENSE"),
    include_str!("vendored/plot.LICENSE"),
    include_str!("vendored/bundled-in-plot.LICENSE"),
];

/// The page that shows the payload, below sections that are HTML already.
pub fn render(payload: &Payload, sections: &str) -> Result<String> {
    Ok(format!(
        include_str!("page/page.html"),
        title = escape::html(&payload.title),
        style = STYLE,
        sections = sections,
        payload = inlined_json(&serde_json::to_string(payload)?),
        licences = LICENCES.join("\n"),
        library = LIBRARY.join("\n"),
        program = [CHARTS.join("\n"), BROWSER.join("\n")].join("\n"),
    ))
}

/// JSON for inside an HTML element: nothing in it can end the element or begin another one.
pub(super) fn inlined_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_ends_its_element() {
        let data = inlined_json(&serde_json::to_string("</script><script>&'\"").unwrap());
        assert!(!data.contains(['<', '>', '&']), "{data}");
        assert_eq!(serde_json::from_str::<String>(&data).unwrap(), "</script><script>&'\"");
    }

    #[test]
    fn the_library_can_stand_in_a_page() {
        for text in LIBRARY.iter().chain(&CHARTS).chain(&BROWSER).chain(&LICENCES) {
            let text = text.to_lowercase();
            assert!(!text.contains("</script") && !text.contains("<!--"));
        }
    }

    /// Compatibility is about all machines, also those whose cases are not shown.
    #[cfg(feature = "charts")]
    #[test]
    fn a_cell_about_machines_whose_cases_are_not_shown_is_there() {
        const PAGE: &str = "const kinds = {}; const chosen = new Map(); const isSelected = [false, true];";
        const SCRIPT: &str = "(() => {
            const of = () => selectedCells({ points: [{ cases: [] }, { cases: [0] }, { cases: [0, 1] }] }).length;
            const before = of();
            chosen.set('backend', new Set(['ort']));
            return `${before} ${of()}`;
        })()";
        let source = [PAGE, include_str!("page/cells.js"), SCRIPT].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: String = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, "2 1");
    }

    #[cfg(feature = "charts")]
    #[test]
    fn copied_columns_are_named_with_their_units() {
        const PAGE: &str = "
            const payload = { note: '', columns: [{ title: 'p50', unit: 'ms' }, { title: 'batch', unit: '' }, { title: 'loss' }]
                .map((column) => ({ ...column, is_number: true, is_default: true })) };
            const cases = [{ group: 'm', cells: [[0.85, '850 µs'], [1, '1'], ''] }];
            const isSelected = [true];
            const areSeveral = () => false;
            const document = { addEventListener() {} };
            const make = () => ({});
            let copied;
            const csvButton = (table) => { copied = table; };";
        const SCRIPT: &str = "(() => { tableSection(); return JSON.stringify(copied()); })()";
        let source = [PAGE, include_str!("page/table.js"), SCRIPT].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: String = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, r#"{"columns":["model","p50 (ms)","batch","loss"],"rows":[["m",0.85,1,null]]}"#);
    }

    /// The matrix says why there is no figure.
    #[cfg(feature = "charts")]
    #[test]
    fn machines_on_which_nothing_ran_have_a_quantity_to_show() {
        const PAYLOAD: &str = "const payload = { fleet: { cases: [{ cells: [{ status: 'failed' }] }] } };";
        const SCRIPT: &str = "fleetQuantities.map((quantity) => quantity.name).join()";
        let source = [NUMBERS, PAYLOAD, include_str!("page/fleet.js"), SCRIPT].join("\n");
        let context = rquickjs::Context::full(&rquickjs::Runtime::new().unwrap()).unwrap();
        let found: String = context.with(|ctx| ctx.eval(source)).unwrap();
        assert_eq!(found, "p50");
    }
}
