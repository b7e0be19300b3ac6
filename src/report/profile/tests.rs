//! Every form of a profile that is small enough to be written by hand.

use serde_json::{Value, json};

use super::*;
use crate::run_data::{Bound, CpuStack, CpuStacks, OUTSIDE, ProfileFailure, ProfileRow};

/// Module, operator, kernel, start and time with the profiler's cost of 2 µs, which is taken off.
type Given = (Option<&'static str>, &'static str, Option<&'static str>, f64, f64);

const ENCODER: [Given; 5] = [
    (Some("encoder.layer.0.query"), "MatMul", Some("mlas_sgemm"), 1.0, 42.0),
    (Some("encoder.layer.1.query"), "MatMul", Some("mlas_sgemm"), 45.0, 22.0),
    (Some("encoder.layer.1.norm"), "LayerNormalization", None, 70.0, 22.0),
    (Some("encoder.layer.1.norm"), "Add", None, 93.0, 3.0),
    (None, "Reorder;\n", None, 97.0, 7.0),
];

/// A case of 100 µs per plain call.
fn case(backend: &str, given: &[Given]) -> CaseProfile {
    let case_id = format!("m/{backend}-cpu-f32/1");
    let row = |(module, operator, kernel, start, raw): &Given| {
        let corrected_us = raw - 2.0;
        let is_product = *operator == "MatMul";
        ProfileRow {
            run_id: "20260101T000000Z-h".into(),
            case_id: case_id.clone(),
            module: module.map(str::to_owned),
            operator: (*operator).to_owned(),
            kernel: kernel.map(str::to_owned),
            node: format!("node_{start}"),
            executions: 1.0,
            raw_us: *raw,
            corrected_us,
            corrected_lower_us: Some(raw - 3.0),
            corrected_upper_us: Some(corrected_us),
            share: (*raw >= 4.0).then_some(corrected_us / 100.0),
            flops: is_product.then_some(2_000_000),
            gflops_per_second: is_product.then_some(2e3 / corrected_us),
            roofline_fraction: is_product.then_some(20.0 / corrected_us),
            bound: Some(if is_product { Bound::Compute } else { Bound::Memory }),
            start_us: Some(*start),
            memory_bytes: Some(1_000_000),
            ..ProfileRow::default()
        }
    };
    let mut rows: Vec<ProfileRow> = given.iter().map(row).collect();
    let outside = 100.0 - rows.iter().map(|row| row.corrected_us).sum::<f64>();
    rows.push(ProfileRow {
        run_id: "20260101T000000Z-h".into(),
        case_id: case_id.clone(),
        operator: OUTSIDE.into(),
        corrected_us: outside,
        corrected_lower_us: Some(outside),
        corrected_upper_us: Some(outside + 5.0),
        share: Some(outside / 100.0),
        ..ProfileRow::default()
    });
    CaseProfile {
        case_id,
        model: "m".into(),
        backend: backend.into(),
        calls: 30,
        plain_us: 100.0,
        profiled_us: 1733.0,
        cost_per_operator_us: 2.0,
        cost_per_operator_upper_us: 3.0,
        has_timeline: true,
        rows,
        positions: Vec::new(),
        stacks: None,
    }
}

fn profile() -> Profile {
    let mut slower = ENCODER;
    slower[1].4 = 32.0;
    let (case_id, message) = ("m/null-cpu-f32/1".into(), "it has no profiler".into());
    let failures = vec![ProfileFailure { case_id, message, ..ProfileFailure::default() }];
    Profile {
        run_id: "20260101T000000Z-h".into(),
        host_id: "h".into(),
        threads: 2,
        cases: vec![case("ort", &ENCODER), case("tch", &slower)],
        failures,
    }
}

fn rendered(form: Form, options: Options) -> String {
    render(&profile(), None, form, &options).unwrap()
}

fn line<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in {text}"))
}

#[test]
fn sentences_say_where_the_time_goes() {
    let case = case("ort", &ENCODER);
    assert_eq!(
        summary(&case),
        "60 % in 2 MatMul at 67 % of the roofline; 20 % in LayerNormalization, bound by memory; 5 % in Reorder;\n, bound by \
         memory; 14 % outside operators. 5 % is in operators that belong to no known module."
    );
    assert_eq!(
        heading(&case),
        "plain 100 µs, profiled 1,733 µs; the profiler adds 2.00 to 3.00 µs to each operator; operators are 81 to 86 % of the plain call; \
         30 calls"
    );
}

#[test]
fn what_is_outside_of_operators_is_unknown_where_the_profiler_hides_it() {
    let mut hidden = case("ort", &ENCODER);
    let outside = hidden.rows.last_mut().unwrap();
    (outside.corrected_us, outside.corrected_lower_us, outside.corrected_upper_us) = (0.0, Some(0.0), Some(40.0));
    outside.share = None;
    assert!(summary(&hidden).contains("0 to 40 % outside operators"), "{}", summary(&hidden));
    let mut unknown = hidden.clone();
    unknown.rows.truncate(1);
    (unknown.rows[0].share, unknown.rows[0].corrected_upper_us) = (None, Some(23.2));
    assert!(summary(&unknown).starts_with("at most 24 % in "), "{}", summary(&unknown));
    assert!(heading(&hidden).contains("operators are 60 to 100 % of the plain call"), "{}", heading(&hidden));
    let text = table(&hidden, &Options { depth: Some(0), most_rows: None }).terminal();
    for part in ["unknown", "0.00 … 40.0", "< 40.0 %"] {
        assert!(line(&text, OUTSIDE).contains(part), "{part}: {text}");
    }
    // A bound is never rounded down.
    hidden.rows.last_mut().unwrap().corrected_upper_us = Some(40.01);
    let text = table(&hidden, &Options { depth: Some(0), most_rows: None }).terminal();
    assert!(line(&text, OUTSIDE).contains("< 40.1 %"), "{text}");
    let difference = crate::profile::difference(&hidden, &case("tch", &ENCODER));
    assert!(difference.rows.iter().all(|row| row.a_operators != OUTSIDE && row.b_operators != OUTSIDE));
}

#[test]
fn rows_are_sorted_and_the_rest_of_the_call_is_last() {
    let text = rendered(Form::Table, Options::default());
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains('─')).skip(1).take(6).collect();
    assert!(rows[0].contains("encoder.layer.0.query") && rows[0].contains("40.0 %"), "{text}");
    assert!(rows[5].contains(OUTSIDE) && rows[5].contains("14.0 %"), "{text}");
    // The addition takes less than twice the profiler's cost.
    assert!(
        line(&text, " Add ").contains("< 1.0 %") && text.contains("  <: an upper bound; the profiler's own cost"),
        "{text}"
    );
    assert!(!text.contains("threads busy"), "a column without a value is left out: {text}");
    assert!(text.ends_with("m/null-cpu-f32/1: it has no profiler\n"), "{text}");
}

#[test]
fn operators_of_a_module_are_one_row() {
    let text = rendered(Form::Table, Options { depth: Some(1), most_rows: Some(2) });
    let products = line(&text, "mlas_sgemm");
    for part in ["encoder ", "mlas_sgemm", "60.0", "60.0 %", "4.00 M", "66.7 %", "compute"] {
        assert!(products.contains(part), "{part}: {products}");
    }
    assert!(text.contains("2 more rows take 6.00 µs together"), "{text}");
    let by_operator = grouped(&case("ort", &ENCODER), Some(0));
    assert!(by_operator.iter().all(|row| row.module.is_none()) && by_operator.len() == 5);
    assert!(by_operator[0].gflops_per_second.is_some_and(|speed| (speed - 66.7).abs() < 0.1));
}

#[test]
fn csv_and_json_have_every_field() {
    let csv = rendered(Form::Csv, Options { most_rows: Some(1), ..Options::default() });
    assert!(
        csv.starts_with("run_id,case_id,module,operator,kernel,node,executions,raw_us,corrected_us,corrected_lower_us,corrected_upper_us,share,"),
        "{csv}"
    );
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<ProfileRow> = reader.deserialize().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows, [profile().cases[0].rows.clone(), profile().cases[1].rows.clone()].concat());
    let json: Profile = serde_json::from_str(&rendered(Form::Json, Options::default())).unwrap();
    assert_eq!(json, profile());
    assert!(schema().contains("\"roofline_fraction\""));
}

#[test]
fn stacks_go_from_the_case_to_the_kernel() {
    let text = rendered(Form::Folded, Options::default());
    assert!(text.starts_with("m/ort-cpu-f32/1;encoder;layer;0;query;MatMul;mlas_sgemm 40000\n"), "{text}");
    assert!(text.contains("\nm/ort-cpu-f32/1;Reorder__ 5000\nm/ort-cpu-f32/1;outside operators 14000\n"), "{text}");
    let is_stack = |line: &str| line.rsplit_once(' ').is_some_and(|(_, time)| time.parse::<u64>().is_ok());
    assert!(text.lines().all(is_stack) && text.lines().count() == 12, "{text}");
}

#[test]
fn stacks_of_threads_of_several_cases_are_told_apart() {
    let stacks = |samples| {
        let stack = CpuStack { frames: vec!["main".into(), "f;g".into()], samples };
        Some(CpuStacks { frequency_hz: 499, stacks: vec![stack] })
    };
    let of = |profile: &Profile| render(profile, None, Form::Stacks, &Options::default());
    let mut sampled = profile();
    assert!(of(&sampled).is_err());
    sampled.cases[0].stacks = stacks(3);
    assert_eq!(of(&sampled).unwrap(), "main;f_g 3\n");
    sampled.cases[1].stacks = stacks(2);
    assert_eq!(of(&sampled).unwrap(), "m/ort-cpu-f32/1;main;f_g 3\nm/tch-cpu-f32/1;main;f_g 2\n");
    // Two runs of one case.
    let mut other = sampled.cases[0].clone();
    other.rows.iter_mut().for_each(|row| row.run_id = "other".into());
    sampled.cases[1] = other;
    let text = of(&sampled).unwrap();
    assert!(text.contains(";m/ort-cpu-f32/1;main;f_g 3\nother;m/ort-cpu-f32/1;main;f_g 3\n"), "{text}");
}

#[test]
fn a_trace_has_a_process_per_case_and_no_overlap() {
    let trace: Value = serde_json::from_str(&rendered(Form::Trace, Options::default())).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!(
        of("M")[0],
        &json!({ "ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": { "name": "m/ort-cpu-f32/1" } })
    );
    assert_eq!((of("X").len(), of("C").len()), (10, 10));
    let tch: Vec<[f64; 2]> = of("X")
        .iter()
        .filter(|event| event["pid"] == 2)
        .map(|event| ["ts", "dur"].map(|name| event[name].as_f64().unwrap()))
        .collect();
    // The second product is longer than the time until the next operator.
    assert_eq!(tch[1], [45.0, 25.0]);
    assert!(tch.windows(2).all(|pair| pair[0][0] + pair[0][1] <= pair[1][0]), "{tch:?}");
}

#[test]
fn without_a_timeline_operators_follow_one_another() {
    let mut flat = case("openvino", &ENCODER);
    flat.has_timeline = false;
    let found: Vec<(f64, f64)> = spans(&flat).iter().map(|span| (span.start_us, span.duration_us)).collect();
    assert_eq!(found, [(0.0, 40.0), (40.0, 20.0), (60.0, 20.0), (80.0, 1.0), (81.0, 5.0)]);
    assert!(trace(&[flat]).contains("operators one after the other (openvino has no timeline)"));
}

#[test]
fn an_operator_that_every_other_call_executes_is_as_long_as_it_takes() {
    let mut one = case("ort", &ENCODER[..1]);
    one.rows[0].executions = 0.5;
    assert_eq!(spans(&one)[0].duration_us, 2.0 * ENCODER[0].4);
}

#[test]
fn a_difference_has_the_slower_module_on_top() {
    let profile = profile();
    let compared = Some([&profile.cases[0], &profile.cases[1]]);
    let of = |form, options| render(&profile, compared, form, &options).unwrap();
    let text = of(Form::Table, Options { most_rows: Some(2), ..Options::default() });
    assert!(
        text.starts_with("A  m/ort-cpu-f32/1  plain 100 µs\nB  m/tch-cpu-f32/1  plain 100 µs, 1.00 × A\n"),
        "{text}"
    );
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains('─')).skip(1).collect();
    for part in ["encoder.layer.1.query", "matmul", "20.0", "30.0", "+10.0", "MatMul"] {
        assert!(rows[0].contains(part), "{part}: {text}");
    }
    // What one module gained, the rest of the call has lost.
    assert!(rows[1].contains("outside") && rows[1].contains("-10.0"), "{text}");
    assert!(rows[2].ends_with("4 more rows differ by 0.00 µs together"), "{text}");
    let same = render(&profile, Some([&profile.cases[0]; 2]), Form::Table, &Options::default()).unwrap();
    assert!(same.starts_with("A  m/ort-cpu-f32/1 of run 20260101T000000Z-h  plain"), "{same}");
    let json: Value = serde_json::from_str(&of(Form::Json, Options::default())).unwrap();
    assert_eq!((&json["rows"][0]["difference_us"], &json["rows"][0]["kind"]), (&json!(10.0), &json!("matmul")));
    assert!(
        of(Form::Csv, Options::default()).starts_with("module,kind,a_operators,b_operators,a_us,b_us,difference_us\n")
    );
}
