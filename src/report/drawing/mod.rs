//! Charts as files: the page's own program draws them in an embedded JavaScript engine (QuickJS), with a small document
//! in place of a browser's.

use anyhow::{Context as _, Result, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use rquickjs::{CatchResultExt, Context, Ctx, FromJs, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::html::{CHARTS, LIBRARY, STYLE};

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

/// The charts of a report, each of which can be drawn as an SVG file.
pub struct Drawing {
    context: Context,
}

/// A chart that the page's program makes from the payload.
#[derive(Debug, Deserialize)]
pub struct Chart {
    pub id: String,
    /// Why there is nothing to draw, and what would give it.
    pub absent: Option<String>,
    /// What is drawn for each case.
    pub points: Vec<Value>,
}

impl Drawing {
    /// Loads the program and the payload, whose charts can be drawn then. The payload is a
    /// [`Payload`](super::payload::Payload) or its JSON in a page.
    ///
    /// # Errors
    /// The program does not run, for example for lack of memory.
    pub fn new(payload: &impl Serialize) -> Result<Self> {
        let payload = serde_json::to_string(payload)?;
        let runtime = Runtime::new().context("cannot start the JavaScript engine")?;
        runtime.set_memory_limit(MEMORY_LIMIT);
        runtime.set_max_stack_size(STACK_LIMIT);
        let context = Context::full(&runtime).context("cannot start the JavaScript engine")?;
        context.with(|ctx| {
            ctx.globals().set("PAYLOAD", payload)?;
            ctx.globals().set("STYLE", STYLE)?;
            for source in [DOCUMENT, INPUT].into_iter().chain(LIBRARY) {
                evaluate::<()>(&ctx, source)?;
            }
            evaluate::<()>(&ctx, &[CHARTS.join("\n").as_str(), SHEET].concat())
        })?;
        Ok(Drawing { context })
    }

    /// All charts, in the order in which they are read.
    pub fn charts(&self) -> Result<Vec<Chart>> {
        let charts: String = self.context.with(|ctx| evaluate(&ctx, "JSON.stringify(charts)"))?;
        Ok(serde_json::from_str(&charts)?)
    }

    /// The SVG file of a chart of the payload.
    ///
    /// # Errors
    /// There is no such chart, or the program fails to draw it.
    pub fn svg(&self, chart_id: &str) -> Result<String> {
        let call = format!("chartSvg({})", serde_json::to_string(chart_id)?);
        let drawn = self.context.with(|ctx| evaluate(&ctx, &call));
        drawn.with_context(|| format!("cannot draw the chart {chart_id}"))
    }
}

/// The value of a script, or its exception with the place.
fn evaluate<'js, T: FromJs<'js>>(ctx: &Ctx<'js>, source: &str) -> Result<T> {
    ctx.eval(source).catch(ctx).map_err(|error| anyhow!("{error}"))
}

/// The package's own font, so that words look the same everywhere.
const FONTS: [&[u8]; 2] = [include_bytes!("fonts/DejaVuSans.ttf"), include_bytes!("fonts/DejaVuSans-Bold.ttf")];

/// Pixels per pixel of the SVG file: sharp in print and on a large screen.
const SHARPNESS: f32 = 2.0;

/// The SVG file as a PNG file, twice as large.
///
/// # Errors
/// The text is not SVG, or the picture is too large.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let mut options = Options::default();
    FONTS.iter().for_each(|font| options.fontdb_mut().load_font_data(font.to_vec()));
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size();
    let pixels = |length: f32| (length * SHARPNESS).ceil() as u32;
    let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height())).with_context(|| {
        format!("{} × {} is too large for a PNG file; choose cases with --model", size.width(), size.height())
    })?;
    resvg::render(&tree, Transform::from_scale(SHARPNESS, SHARPNESS), &mut pixmap.as_mut());
    Ok(pixmap.encode_png()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::compare::Noise;
    use crate::definition::{Case, Dtype, Phase, Status};
    use crate::report::load::CurvePoint;
    use crate::report::numbers::latency;
    use crate::report::payload::{Known, Payload};
    use crate::report::selection::{ReportedRun, Shown};
    use crate::report::tests::{record, run_of};
    use crate::run_data::{Distribution, Distributions, Record};

    fn payload_of(runs: &[ReportedRun]) -> Payload {
        let known = Known { resolution: &|_| String::new(), noise: &|_| Noise::assumed(), fleet: None };
        Payload::new(&Shown::new(runs, &[]), &known)
    }

    fn drawing_of(runs: &[ReportedRun]) -> Drawing {
        Drawing::new(&payload_of(runs)).unwrap()
    }

    fn drawing(records: Vec<Record>) -> Drawing {
        drawing_of(&[run_of(1, records)])
    }

    fn chart(runs: &[ReportedRun], id: &str) -> Chart {
        let mut charts = drawing_of(runs).charts().unwrap().into_iter();
        charts.find(|chart| chart.id == id).unwrap()
    }

    /// The values of these names of each point.
    fn values<const N: usize>(chart: &Chart, names: [&str; N]) -> Vec<Value> {
        chart.points.iter().map(|point| Value::from(names.map(|name| point[name].clone()).to_vec())).collect()
    }

    #[test]
    fn a_backend_keeps_its_colour_whatever_is_beside_it() {
        let colours = |names: &[&str]| -> Vec<String> {
            let drawing = drawing(names.iter().map(|name| record("m", name, 1, Some(1.0))).collect());
            let source = "JSON.stringify(backends.map((name) => lightColour(backendColour(name))))";
            let colours: String = drawing.context.with(|ctx| evaluate(&ctx, source)).unwrap();
            serde_json::from_str(&colours).unwrap()
        };
        let among = colours(&["ort", "tch", "mine", "yours"]);
        let different: std::collections::HashSet<&String> = among.iter().collect();
        assert_eq!((among.len(), different.len()), (4, 4));
        // In the order of their names.
        assert_eq!((colours(&["tch"]), &colours(&["ort"])[0]), (vec![among[2].clone()], &among[1]));
    }

    #[test]
    fn eight_machines_have_eight_marks_that_can_be_filled() {
        let on = |number: usize| Record { host_id: format!("h{number}"), ..record("m", "ort", 1, Some(1.0)) };
        let machines: Vec<Record> = (0..8).map(on).collect();
        let drawing = drawing(machines.clone());
        let script = "new Set([...series.keys()].map((name) => svgText(seriesMark(name)))).size";
        let marks: u32 = drawing.context.with(|ctx| evaluate(&ctx, script)).unwrap();
        assert_eq!(marks, 8);
        // An open line has no area.
        let script =
            "SYMBOLS.filter((name) => !/[AZ]/.test(symbolMark(name, 'red').firstChild.getAttribute('d'))).join()";
        let open: String = drawing.context.with(|ctx| evaluate(&ctx, script)).unwrap();
        assert_eq!(open, "");
        // The trend has the symbols of its legend.
        let svg = drawing_of(&[run_of(1, machines.clone()), run_of(2, machines)]).svg("trend").unwrap();
        assert!(svg.matches(">ort · ").count() == 8 && !svg.contains("<circle"), "{svg}");
    }

    #[test]
    fn a_variable_that_the_style_sheet_does_not_have_stays() {
        let drawing = drawing(vec![record("m", "ort", 1, Some(1.0))]);
        let colour: String = drawing.context.with(|ctx| evaluate(&ctx, "lightColour('var(--nosuch)')")).unwrap();
        assert_eq!(colour, "var(--nosuch)");
    }

    #[test]
    fn points_of_a_server_belong_to_no_backend() {
        let mut payload = payload_of(&[run_of(1, vec![record("m", "ort", 1, Some(1.0))])]);
        let point = |per_s| CurvePoint {
            per_s,
            ms: per_s,
            ttft_ms: None,
            tokens_per_s: None,
            split: "triton".into(),
            is_knee: false,
            is_server: true,
        };
        let place = ("h".to_owned(), "m/http-triton-f32/1".to_owned());
        payload.give_curves(&BTreeMap::from([(place, vec![point(1.0), point(2.0)])]));
        let svg = Drawing::new(&payload).unwrap().svg("load").unwrap();
        assert!(svg.contains(">server<") && svg.contains(">triton<") && !svg.contains(">ort<"), "{svg}");
        assert!(svg.contains("fill=\"#ffffff\" stroke=\"currentColor\"") && !svg.contains("#0072b2"), "{svg}");
    }

    #[test]
    fn without_an_original_in_f32_the_one_that_was_measured_is_the_reference() {
        let form = |variant: &str, dtype, megabytes| {
            let case = Case { variant: variant.into(), dtype, phase: Phase::Decode, ..Case::new("m", "ort", 1) };
            let (tokens_per_second, model_size_mb) = (Some(10.0), Some(megabytes));
            Record { tokens_per_second, model_size_mb, ..record("m", "ort", 1, Some(1.0)) }.about(&case)
        };
        let (half, small) = (form("original", Dtype::F16, 10.0), form("q4", Dtype::F32, 5.0));
        let whole = form("original", Dtype::F32, 20.0);
        let forms = |records: Vec<Record>| values(&chart(&[run_of(1, records)], "forms"), ["label", "kl"]);
        let both = vec![half.clone(), small.clone()];
        assert_eq!(forms(both.clone()), [json!(["original f16", 0]), json!(["q4", null])]);
        let unknown = [json!(["original", 0]), json!(["original f16", null]), json!(["q4", null])];
        assert_eq!(forms(vec![whole, half, small]), unknown);
        // Forms of unknown divergence were not compared, so nothing says that they are worse.
        let script = "kinds.losses.words(charts.find((chart) => chart.id === 'forms')).join()";
        let words: String = drawing(both).context.with(|ctx| evaluate(&ctx, script)).unwrap();
        assert!(words.ends_with("the front is original f16 on ort (10.0 MB, 10.0 tokens/s, KL 0.00)."), "{words}");
    }

    #[test]
    fn a_chart_rounds_as_a_table_does() {
        let drawing = drawing(vec![record("m", "ort", 1, Some(1.0))]);
        let written =
            |ms: f64| -> String { drawing.context.with(|ctx| evaluate(&ctx, &format!("milliseconds({ms})"))).unwrap() };
        assert_eq!(written(174.5), "175 ms");
        let near_thousands = [0.000_999_7, 0.999_4, 0.999_7];
        for ms in (16..16_000).map(|sixteenths| f64::from(sixteenths) / 16.0).chain(near_thousands) {
            assert_eq!(written(ms), latency(ms));
        }
        let written: String = drawing.context.with(|ctx| evaluate(&ctx, "threeDigits(1234567)")).unwrap();
        assert_eq!(written, "1.23e6");
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
        let hostile = "\u{1}</text><script>\"'`${1}\\";
        let svg = drawing(vec![record(hostile, hostile, 1, Some(1.0))]).svg("latency").unwrap();
        assert!(png(&svg).is_ok(), "{svg}");
        assert!(!svg.contains("<script") && svg.contains("&lt;/text&gt;&lt;script&gt;&quot;&#39;`${1}\\"), "{svg}");
    }

    #[test]
    fn the_front_is_what_no_other_point_beats() {
        let drawing = drawing(vec![record("m", "ort", 1, Some(1.0))]);
        let mut runner = proptest::test_runner::TestRunner::default();
        let points = proptest::collection::vec((0u8..9, 0u8..9, 0u8..3), 0..30);
        let found = runner.run(&points, |points| {
            let beats = |a: &(u8, u8, u8), b: &(u8, u8, u8)| a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2 && a != b;
            let is_on_front = |point: &&(u8, u8, u8)| !points.iter().any(|other| beats(other, point));
            let mut expected: Vec<(u8, u8, u8)> = points.iter().filter(is_on_front).copied().collect();
            let lists: String = points.iter().map(|(x, y, z)| format!("[{x}, {y}, {z}],")).collect();
            let script = format!("JSON.stringify(frontOf([{lists}], [0, 1, 2].map((axis) => (point) => point[axis])))");
            let front: String = drawing.context.with(|ctx| evaluate(&ctx, &script)).unwrap();
            let mut front: Vec<(u8, u8, u8)> = serde_json::from_str(&front).unwrap();
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

    #[test]
    fn a_case_without_a_right_figure_is_not_drawn() {
        let wrong = Record { status: Status::WrongOutput, ..record("m", "tch", 1, Some(1.0)) };
        let zero = record("n", "ort", 1, Some(0.0));
        let chart = chart(&[run_of(1, vec![record("m", "ort", 8, Some(2.0)), wrong, zero])], "latency");
        assert_eq!(values(&chart, ["panel", "case", "batch_size"]), [json!(["m", 0, 8])]);
    }

    #[test]
    fn latency_is_drawn_against_the_sizes_of_a_sweep() {
        let sized = |size: usize, batch_size, ms| Record {
            dims: Some(format!("height={size},width={size}")),
            ..record("m", "ort", batch_size, Some(ms))
        };
        let records = vec![sized(10, 1, 1.0), sized(20, 1, 4.0), sized(10, 8, 9.0), record("n", "ort", 1, Some(2.0))];
        let chart = chart(&[run_of(1, records.clone())], "latency-by-size");
        let of_pixels = [(0, 100), (1, 400)].map(|(case, size)| json!(["m · batch 1", case, size]));
        assert_eq!(values(&chart, ["panel", "case", "size"]), of_pixels);
        let svg = drawing(records[..2].to_vec()).svg("latency-by-size").unwrap();
        for part in [">height × width →<", ">100<", ">400<", "latency (ms)"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("undefined"), "{svg}");
        // If the filters leave only one size, the bars' title names it.
        let script = "isSelected = [true, false]; \
                      kinds.batches.panels(charts.find((chart) => chart.at)).map((panel) => panel.title).join()";
        let title: String = drawing(records[..2].to_vec()).context.with(|ctx| evaluate(&ctx, script)).unwrap();
        assert_eq!(title, "m · batch 1 · height 10 × width 10");
    }

    #[test]
    fn an_empty_chart_says_what_would_fill_it() {
        let run = [run_of(1, vec![record("m", "ort", 1, Some(1.0))])];
        let absent = |runs: &[ReportedRun], id: &str| chart(runs, id).absent.unwrap();
        assert!(absent(&run, "memory").contains("watch = true"));
        assert!(absent(&run, "load").contains("inferbench load search"));
        assert!(absent(&run, "trend").contains("--last"));
        assert!(absent(&run, "hardware").contains("report RUN1 RUN2"));
        assert!(absent(&run, "accuracy").contains("the column `accuracy`"));
        let (original, output_cosine) = (record("m", "ort", 1, Some(1.0)), Some(0.99));
        let variant = Record { variant: "int8".into(), output_cosine, ..original.clone() };
        assert!(absent(&[run_of(1, vec![original, variant])], "accuracy").contains("the column `output_cosine`"));
        assert!(absent(&[], "latency").contains("inferbench devices"));
    }

    #[test]
    fn kept_quantiles_go_before_the_percentiles_of_the_record() {
        let with_percentiles = |batch| Record {
            latency_p99_ms: Some(3.0),
            latency_p99_upper_ms: Some(4.0),
            ..record("m", "ort", batch, Some(2.0))
        };
        let mut run = run_of(1, vec![with_percentiles(1), with_percentiles(8)]);
        let kept = Distribution { calls: 4, quantiles_ms: vec![(0.25, 1.0), (0.5, 2.0), (0.75, 2.5)] };
        run.distributions = Some(Distributions::new([("m/ort-cpu-f32/8".to_owned(), kept)].into()));
        let chart = chart(&[run], "distribution");
        assert_eq!(values(&chart, ["panel"]), [json!(["m · batch 1"]), json!(["m · batch 8"])]);
        assert_eq!(chart.points[0]["quantiles"], json!([[0.5, 2], [0.99, 3]]));
        let bound =
            |fraction: f64, ms: u32, upper: Option<u32>| json!({"fraction": fraction, "ms": ms, "upper": upper});
        assert_eq!(chart.points[0]["bounds"], json!([bound(0.5, 2, None), bound(0.99, 3, Some(4))]));
        // Four calls do not have a p99.
        let lengths = ["quantiles", "bounds"].map(|name| chart.points[1][name].as_array().unwrap().len());
        assert_eq!(lengths, [3, 1]);
    }

    #[test]
    fn each_batch_size_has_its_own_fastest() {
        let of = |backend, batch, ms| Record { family: "resnet".into(), ..record("m", backend, batch, Some(ms)) };
        let run = run_of(1, vec![of("ort", 1, 2.0), of("tch", 1, 3.0), of("ort", 8, 8.0), of("tch", 8, 4.0)]);
        let row = |value: Value| json!(["resnet", value]);
        let expected = [row(json!(1)), row(json!(1.5)), row(json!(2)), row(json!(1))];
        assert_eq!(values(&chart(&[run], "architectures"), ["row", "value"]), expected);
    }

    #[test]
    fn a_series_is_named_by_what_differs() {
        let plain = || record("m", "ort", 1, Some(1.0));
        let half = Record { dtype: Dtype::F16, ..plain() };
        let elsewhere = Record { host_id: "other".into(), ..plain() };
        let series = |records: Vec<Record>| values(&chart(&[run_of(1, records)], "architectures"), ["series"]);
        assert_eq!(series(vec![plain()]), [json!(["ort"])]);
        assert_eq!(series(vec![plain(), half]), [json!(["ort · f32"]), json!(["ort · f16"])]);
        assert_eq!(series(vec![plain(), elsewhere]), [json!(["ort · h"]), json!(["ort · other"])]);
    }

    #[test]
    fn only_what_two_machines_have_is_compared() {
        let elsewhere = |batch| Record { host_id: "gpu".into(), ..record("m", "ort", batch, Some(0.5)) };
        let here = run_of(1, vec![record("m", "ort", 1, Some(1.0)), record("m", "ort", 8, Some(4.0))]);
        let chart = chart(&[here, run_of(2, vec![elsewhere(1)])], "hardware");
        let point = |series: &str| json!(["m", "ort · f32 · batch 1", series]);
        assert_eq!(values(&chart, ["panel", "row", "series"]), [point("h · cpu"), point("gpu · cpu")]);
    }

    #[test]
    fn models_are_compared_at_their_smallest_batch_size() {
        let of = |model, modality: &str, batch, ms, size| Record {
            model_size_mb: Some(size),
            modality: modality.into(),
            ..record(model, "ort", batch, Some(ms))
        };
        let records = vec![
            of("m", "image", 8, 9.0, 5.0),
            of("m", "image", 2, 3.0, 5.0),
            of("n", "image", 2, 4.0, 6.0),
            of("alone", "text", 1, 1.0, 1.0),
        ];
        let chart = chart(&[run_of(1, records)], "size");
        assert_eq!(values(&chart, ["panel", "x"]), [json!(["image", 3]), json!(["image", 4])]);
    }

    #[test]
    fn all_cases_of_a_cell_of_the_matrix_tell_their_reason() {
        let right = |batch, error| Record {
            verified: Some(true),
            max_rel_error: Some(error),
            ..record("m", "ort", batch, Some(1.0))
        };
        let mut wrong = record("m", "ort", 16, None);
        (wrong.status, wrong.message) = (Status::WrongOutput, Some("0.5 off".into()));
        let cell = |records: Vec<Record>| chart(&[run_of(1, records)], "compatibility").points.remove(0);
        let good = cell(vec![right(1, 1e-7), right(8, 2e-6), right(2, 1e-8)]);
        assert_eq!((&good["kind"], &good["text"]), (&"high".into(), &"high, error 2e-6".into()));
        let mixed = cell(vec![right(1, 1e-7), wrong.clone(), right(8, 2e-6)]);
        assert_eq!((&mixed["kind"], &mixed["column"]), (&"low".into(), &"ort · cpu · f32".into()));
        assert_eq!(
            mixed["reason"],
            "batch 1: outputs as the reference's, relative error 1.0e-7\nbatch 16: wrong-output: 0.5 off\n\
             batch 8: outputs as the reference's, relative error 2.0e-6"
        );
        assert_eq!(cell(vec![wrong])["kind"], "wrong-output");
        // The reason names the backend that the outputs were compared with, whether or not the error is known.
        let agreed = |max_rel_error| Record {
            verified: Some(true),
            verified_by: Some("tch".into()),
            max_rel_error,
            ..record("m", "ort", 1, Some(1.0))
        };
        assert_eq!(cell(vec![agreed(None)])["reason"], "batch 1: outputs agree with tch");
        assert_eq!(cell(vec![agreed(Some(1e-7))])["reason"], "batch 1: outputs agree with tch, relative error 1.0e-7");
    }
}
