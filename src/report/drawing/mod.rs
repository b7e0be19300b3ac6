//! Charts as files: the page's own program draws them in an embedded JavaScript engine (QuickJS), over a small document of
//! ours in place of a browser's.

mod pixels;

pub use pixels::png;

use anyhow::{Context as _, Result, anyhow, ensure};
use rquickjs::{CatchResultExt, Context, Ctx, FromJs, Runtime};

use super::html::{CHARTS, LIBRARY, STYLE};
use super::payload::Payload;

const DOCUMENT: &str = include_str!("document.js");
const SHEET: &str = include_str!("sheet.js");

/// Gives the program what it finds in a page: the payload, and the colours of the style sheet.
const INPUT: &str = "
    document.getElementById = () => ({ textContent: PAYLOAD });
    for (const [, name, value] of STYLE.matchAll(/(--[\\w-]+): (.+);/g)) document.documentElement.style.setProperty(name, value);
";

/// More than a report of a thousand cases needs.
const MEMORY_LIMIT: usize = 1 << 30;
const STACK_LIMIT: usize = 1 << 20;

/// A report whose charts can be drawn, each as an SVG file.
pub struct Drawing {
    context: Context,
}

impl Drawing {
    /// Loads the program and the payload, whose charts can be drawn then.
    ///
    /// # Errors
    /// The program does not run, for example for lack of memory.
    pub fn new(payload: &Payload) -> Result<Self> {
        let runtime = Runtime::new().context("cannot start the JavaScript engine")?;
        runtime.set_memory_limit(MEMORY_LIMIT);
        runtime.set_max_stack_size(STACK_LIMIT);
        let context = Context::full(&runtime).context("cannot start the JavaScript engine")?;
        let data = serde_json::to_string(payload)?;
        context.with(|ctx| {
            ctx.globals().set("PAYLOAD", data)?;
            ctx.globals().set("STYLE", STYLE)?;
            for source in [DOCUMENT, INPUT].into_iter().chain(LIBRARY) {
                evaluate::<()>(&ctx, source)?;
            }
            evaluate::<()>(&ctx, &[CHARTS.join("\n").as_str(), SHEET].concat())
        })?;
        Ok(Drawing { context })
    }

    /// The SVG file of a chart of the payload.
    ///
    /// # Errors
    /// There is no such chart, or the program fails to draw it.
    pub fn svg(&self, chart_id: &str) -> Result<String> {
        let is_name = chart_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        ensure!(is_name, "{chart_id:?} is not the id of a chart");
        let drawn = self.context.with(|ctx| evaluate(&ctx, &format!("chartSvg(\"{chart_id}\")")));
        drawn.with_context(|| format!("cannot draw the chart {chart_id}"))
    }
}

/// The value of a script, or its exception with the place.
fn evaluate<'js, T: FromJs<'js>>(ctx: &Ctx<'js>, source: &str) -> Result<T> {
    ctx.eval(source).catch(ctx).map_err(|error| anyhow!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Noise;
    use crate::report::payload::Known;
    use crate::report::selection::Shown;
    use crate::report::tests::{record, run_of};
    use crate::run_data::Record;

    fn drawing(records: Vec<Record>) -> Drawing {
        let known = Known { resolution: &|_| String::new(), noise: &|_| Noise::assumed() };
        Drawing::new(&Payload::new(&Shown::new(&[run_of(1, records)], &[]), &known)).unwrap()
    }

    #[test]
    fn lines_bars_and_names_are_drawn() {
        let records = vec![
            record("m", "ort", 1, Some(1.0)),
            record("m", "ort", 8, Some(4.0)),
            record("m", "tch", 1, Some(3.0)),
            record("n", "ort", 1, Some(2.0)),
        ];
        let drawing = drawing(records);
        let svg = drawing.svg("latency").unwrap();
        for part in [
            ">Latency against batch size<",
            ">ort<",
            ">tch<",
            ">n · batch 1<",
            "2.00 ms",
            "#0072b2",
            "#d55e00",
            "latency (ms)",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        for part in ["NaN", "undefined", "var(", "light-dark("] {
            assert!(!svg.contains(part), "{part}: {svg}");
        }
        assert!(png(&svg).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn names_that_look_like_markup_or_code_are_only_names() {
        let hostile = "</text><script>\"'`${1}\\";
        let svg = drawing(vec![record(hostile, hostile, 1, Some(1.0))]).svg("latency").unwrap();
        assert!(!svg.contains("<script") && svg.contains("&lt;/text&gt;&lt;script&gt;&quot;&#39;`${1}\\"), "{svg}");
    }

    #[test]
    fn the_front_is_what_no_other_point_beats() {
        let drawing = drawing(vec![record("m", "ort", 1, Some(1.0))]);
        let mut runner = proptest::test_runner::TestRunner::default();
        let points = proptest::collection::vec((0u8..9, 0u8..9), 0..30);
        let found = runner.run(&points, |points| {
            let beats = |a: &(u8, u8), b: &(u8, u8)| a.0 <= b.0 && a.1 <= b.1 && a != b;
            let is_on_front = |point: &&(u8, u8)| !points.iter().any(|other| beats(other, point));
            let mut expected: Vec<(u8, u8)> = points.iter().filter(is_on_front).copied().collect();
            let objects: String = points.iter().map(|(x, y)| format!("{{x: {x}, y: {y}}},")).collect();
            let script = format!("JSON.stringify(frontOf([{objects}], \"lower\").map(({{x, y}}) => [x, y]))");
            let front: String = drawing.context.with(|ctx| evaluate(&ctx, &script)).unwrap();
            let mut front: Vec<(u8, u8)> = serde_json::from_str(&front).unwrap();
            expected.sort_unstable();
            front.sort_unstable();
            proptest::prop_assert_eq!(front, expected);
            Ok(())
        });
        found.unwrap();
    }

    #[test]
    fn a_chart_that_is_not_there_is_an_error() {
        let drawing = drawing(vec![record("m", "ort", 1, Some(1.0))]);
        assert!(drawing.svg("nosuch").is_err() && drawing.svg("\"); (\"").is_err());
    }
}
