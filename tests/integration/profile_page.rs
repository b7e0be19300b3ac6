//! The page of a profile in a browser.

use inferbench::report::profile::page;
use inferbench::run_data::{CaseProfile, OUTSIDE, Profile, ProfileFailure, ProfileRow};
use serde_json::json;

use crate::support::chromium;

/// Twelve layers of a transformer. With `slow`, the dense product of this layer takes twice its time.
fn case(backend: &str, names: [&str; 3], slow: Option<usize>) -> CaseProfile {
    let [linear, softmax, norm] = names;
    let mut rows = Vec::new();
    let mut at = 0.0;
    let mut add = |module: Option<String>, operator: &str, us: f64| {
        rows.push(ProfileRow {
            module,
            operator: operator.into(),
            node: format!("node_{}", rows.len()),
            executions: 1.0,
            raw_us: us + 1.0,
            corrected_us: us,
            corrected_lower_us: Some(us - 0.5),
            corrected_upper_us: Some(us + 0.5),
            share: (us > 2.0).then_some(us / 6000.0),
            start_us: Some(at),
            thread: u32::from(operator == softmax),
            memory_bytes: Some(1_000_000 + 1000 * at as u64),
            ..ProfileRow::default()
        });
        at += us + 1.5;
    };
    add(Some("embeddings".into()), "Gather", 12.0);
    for layer in 0..12 {
        let of = |part: &str| Some(format!("encoder.layer.{layer}.{part}"));
        for part in ["query", "key", "value"] {
            add(of(&format!("attention.self.{part}")), linear, 50.0);
        }
        add(of("attention.self"), softmax, 20.0);
        add(of("dense"), linear, if slow == Some(layer) { 400.0 } else { 200.0 });
        add(of("dense"), "Add", 1.5);
        add(of("norm"), norm, if slow.is_some() { 8.0 } else { 10.0 });
    }
    add(None, "Reorder<img onerror=alert(1)>", 5.0);
    rows.push(ProfileRow { operator: OUTSIDE.into(), corrected_us: 300.0, share: Some(0.05), ..ProfileRow::default() });
    CaseProfile {
        case_id: format!("bert/{backend}-cpu-f32/1"),
        model: "bert".into(),
        backend: backend.into(),
        calls: 30,
        plain_us: 6000.0,
        profiled_us: 6400.0,
        cost_per_operator_us: 1.0,
        cost_per_operator_upper_us: 2.0,
        has_timeline: true,
        rows,
        positions: Vec::new(),
        stacks: None,
    }
}

fn example() -> Profile {
    let ort = case("ort", ["MatMul", "Softmax", "LayerNormalization"], None);
    let tch = case("tch", ["aten::linear", "aten::softmax", "aten::layer_norm"], Some(2));
    let (case_id, message) = ("bert/null-cpu-f32/1".into(), "</script>it has no profiler".into());
    let failure = ProfileFailure { case_id, message, ..ProfileFailure::default() };
    Profile { threads: 2, cases: vec![ort, tch], failures: vec![failure], ..Profile::default() }
}

#[test]
fn the_page_is_one_file_that_requests_nothing() {
    let page = page(&example(), None).unwrap();
    for request in [" src=", "<link", "@import", "url(http", "href=\"http", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(request), "{request}");
    }
    assert!(page.contains("default-src 'none'") && !page.contains("<img") && page.matches("</script>").count() == 2);
    assert!(page.len() < 150_000, "{} bytes", page.len());
}

#[test]
fn a_browser_zooms_searches_and_compares() {
    let folder = tempfile::tempdir().unwrap();
    // The second case is opened by the address.
    let Some(seen) = chromium::read(
        &page(&example(), None).unwrap(),
        include_str!("../data/profile_reader.js"),
        folder.path(),
        "#bert%2Ftch-cpu-f32%2F1",
    ) else {
        return;
    };
    assert_eq!(seen["errors"], json!([]), "{seen}");
    // Three levels of modules and one of operators in each layer.
    assert!(seen["bars"].as_u64().unwrap() > 12 * 12, "{seen}");
    assert_eq!(
        (&seen["summaries"], &seen["lanes"], &seen["hasMemory"]),
        (&json!(3), &json!(2), &json!(true)),
        "{seen}"
    );
    assert!(
        seen["told"].as_str().unwrap().starts_with("embeddings\nGather\nnode node_0\n12.0 µs, 0.2 % of the call"),
        "{seen}"
    );
    assert_eq!((&seen["zoom"], &seen["back"]), (&json!([true, true, 0]), &json!(true)), "{seen}");
    assert_eq!(seen["byKeys"], json!(["encoder.layer.0", false, "encoder.layer.0"]), "{seen}");
    assert_eq!(seen["found"], json!([12, true, "240 µs, 4.0 %"]), "{seen}");
    let nothing = json!(["nothing found", "nothing found"]);
    assert_eq!((&seen["nothing"], &seen["unmarked"]), (&nothing, &json!(0)), "{seen}");
    let layer = |part: &str| format!("encoder.layer.2.{part}");
    let parts = ["dense", "attention.self.query", "attention.self.key", "attention.self.value"].map(layer);
    assert_eq!((&seen["filtered"], &seen["first"]), (&json!(parts), &json!(parts[0])), "{seen}");
    assert_eq!(seen["sorted"], true, "{seen}");
    // Both bounds are copied.
    let copied = seen["copied"].as_array().unwrap();
    assert_eq!(copied[0], "module,operator,calls,raw µs,µs,from µs,to µs,share (fraction),memory (bytes)", "{seen}");
    assert!(copied[1].as_str().unwrap().contains(",401,400,399.5,400.5,"), "{seen}");
    // Names of cases and headers of tables are printed, tools are not.
    assert_eq!(seen["onPaper"], json!([true, true, false, false]), "{seen}");
    // Compared with the other backend, A is the slower one.
    assert_eq!(seen["hash"], "#bert%2Ftch-cpu-f32%2F1&bert%2Fort-cpu-f32%2F1", "{seen}");
    assert_eq!(seen["slowest"], json!(["encoder.layer.2.dense", "−200"]), "{seen}");
    assert_eq!(seen["colours"], json!(["var(--faster)", "var(--slower)"]), "{seen}");
    assert_eq!((&seen["slower"], &seen["timelines"]), (&json!("var(--faster)"), &json!(0)), "{seen}");
}

/// Says how wide the page is in a frame of 400 pixels.
const MEASURE: &str = "addEventListener('load', () => { const inner = document.querySelector('iframe').contentDocument; \
    const seen = { ready: inner.documentElement.dataset.ready, beyond: inner.scrollingElement.scrollWidth - inner.scrollingElement.clientWidth, \
    bars: inner.querySelectorAll('#icicle g').length }; \
    const pre = document.createElement('pre'); pre.id = 'seen'; pre.textContent = JSON.stringify(seen); document.body.replaceChildren(pre); });";

#[test]
fn nothing_leaves_a_narrow_window() {
    for compared in [None, Some((0, 1))] {
        let page = page(&example(), compared).unwrap().replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<html><head></head><body><iframe style=\"width: 400px; height: 800px; border: 0\" srcdoc=\"{page}\"></iframe></body></html>"
        );
        let folder = tempfile::tempdir().unwrap();
        let Some(seen) = chromium::read(&frame, MEASURE, folder.path(), "") else { return };
        assert_eq!((&seen["ready"], &seen["beyond"]), (&json!("yes"), &json!(0)), "{seen}");
        assert!(seen["bars"].as_u64().unwrap() > 60, "{seen}");
    }
}
