//! JAX in an external worker.

use inferbench::definition::Phase;
use inferbench::onnx::cost;

use super::*;
use crate::support::has_onnxruntime;

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn networks_of_all_kinds_are_right_and_say_how_long_they_were_compiled() {
    if !has_environment("jax") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small", "t5-tiny"], &["jax"], &[1, 3]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 12, "digits, prefill and decode of llama-small, all phases of t5-tiny");
    let (mut compiled_ms, mut traced_ms) = (0.0, 0.0);
    for record in records {
        let id = record.case().to_string();
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        assert!(record.max_rel_error.unwrap() < 1e-4, "{id}");
        assert_eq!((record.threads, record.providers.as_deref()), (Some(1), Some("XLA cpu")), "{id}");
        let (compiled, traced) = (record.compilation_time_ms.unwrap(), record.trace_time_ms.unwrap());
        assert!(compiled > 0.0 && traced > 0.0 && record.load_time_ms.unwrap() > 0.0, "{id}");
        compiled_ms += compiled;
        traced_ms += traced;
        assert!(record.library_version.unwrap().starts_with("jax 0."), "{id}");
        let says = record.message.unwrap_or_default();
        assert_eq!(says.contains("executable"), id.contains("decode"), "{id}: {says}");
        // T5's decoder counts the positions of its cache.
        assert!(
            !id.contains("llama-small-seq32-decode") || says.contains("one executable for all steps"),
            "{id}: {says}"
        );
    }
    // Of all cases together: a pause while a single one is traced would be longer than its compilation.
    assert!(compiled_ms > traced_ms, "{compiled_ms} {traced_ms}");
}

#[test]
fn calls_from_host_to_host_have_stages_by_the_clock_of_the_process() {
    if !has_environment("jax") {
        return;
    }
    let workplace = Workplace::new(&["digits", "llama-small"], &["jax"], &[1]);
    let mut command = workplace.inferbench(&["run", "--noplot", "--boundary", "end-to-end"]);
    // XLA would end at a flag that it does not know. A user's flags are not the case's.
    command.env("XLA_FLAGS", "--xla_no_such_flag=1").finish().with_code(0);
    let records = workplace.records();
    assert_eq!(records.len(), 3);
    for record in records {
        let id = record.case().to_string();
        if id.contains("decode") {
            assert_eq!(record.status, Status::Unsupported, "{id}");
            continue;
        }
        assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
        let stages = [record.h2d_ms, record.compute_ms, record.d2h_ms].map(Option::unwrap);
        assert!(stages.iter().all(|ms| *ms > 0.0), "{id}: {stages:?}");
    }
}

/// The operations of the graphs of a case of a batch of one.
fn flops_of_graphs(case_id: &str) -> f64 {
    let (name, phase) = match case_id.split_once('/').unwrap().0 {
        "llama-small-seq32-decode" => ("llama-small", Phase::Decode),
        name => (name, Phase::Forward),
    };
    let model = crate::cost::model(name);
    let length = model.has_sequence().then_some(32);
    cost(&model, phase, crate::cost::sizes(1, length)).unwrap().flops as f64
}

#[test]
fn a_profile_names_the_nodes_that_xlas_instructions_come_from() {
    if !has_environment("jax") {
        return;
    }
    let workplace = Workplace::new(&["tenn_eeg", "llama-small"], &["jax"], &[1]);
    let asked = ["profile", "--phase", "forward,decode", "--format", "json"];
    let profiled = workplace.inferbench(&asked).finish().with_code(0);
    let profile: Value = serde_json::from_str(&profiled.stdout).unwrap();
    let cases = profile["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2, "{}", profiled.stderr);
    for case in cases {
        let text = case["rows"].to_string();
        assert!(text.contains("MatMul") || text.contains("Conv"), "{text}");
        // XLA counts elementwise operations, too, and of convolutions none with what pads them.
        let rows = case["rows"].as_array().unwrap();
        let by_xla: f64 = rows.iter().filter_map(|row| row["flops"].as_f64()).sum();
        let of_graph = flops_of_graphs(case["case_id"].as_str().unwrap());
        assert!((0.8..1.6).contains(&(by_xla / of_graph)), "{by_xla} of {of_graph}: {case}");
        let has_cost = |row: &&Value| row["bytes"].as_f64().is_some_and(|bytes| bytes > 0.0);
        assert!(10 * rows.iter().filter(has_cost).count() > 9 * (rows.len() - 1), "{case}");
    }
}

#[test]
fn pictures_grow_as_in_onnxruntime() {
    if !has_environment("jax") || !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort", "jax"], &[2]);
    workplace.add_model("growing_pictures.onnx", "models/exported/planted.onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    let record = workplace.record("planted/jax-cpu-f32/2");
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{:?}", record.message);
}

/// Means of every second number of a row, with and without what lies beyond its ends.
const MEANS: &str = r#"
import sys
sys.path[:0] = sys.argv[1:]
import numpy, operators
x = numpy.array([[[1, 2, 4, 8, 16]]], numpy.float32)
def means(**attributes):
    pooled = operators.OPERATORS["AveragePool"](operators.jnp, {"kernel_shape": [2], "dilations": [2], **attributes}, x)
    return numpy.asarray(pooled).tolist()
assert means() == [[[2.5, 5, 10]]], means()
assert means(pads=[1, 1]) == [[[2, 2.5, 5, 10, 8]]], means(pads=[1, 1])
assert means(pads=[1, 1], count_include_pad=1) == [[[1, 2.5, 5, 10, 4]]]
"#;

#[test]
fn a_mean_over_a_window_with_gaps_leaves_the_gaps_out() {
    if !has_environment("jax") {
        return;
    }
    let folders = ["python", "jax"].map(|of| crate::support::checkout().join("src/backend/outside").join(of));
    let mut means = Command::new(environment("jax").join("bin/python"));
    means.args(["-c", MEANS]).args(folders).env("JAX_PLATFORMS", "cpu").finish().with_code(0);
}

/// Operators in training mode, and a root of whole numbers.
const OPERATORS: &str = r#"
import sys
sys.path[:0] = sys.argv[1:]
import numpy, operators, sessions
x = numpy.array([[4, 9]])
assert operators.OPERATORS["Pow"](numpy, {}, x, numpy.array(0.5)).tolist() == [[2, 3]]
assert operators.OPERATORS["Dropout"](numpy, {}, x, None, numpy.array(False)) is x
for name, attributes, others in [
    ("Dropout", {}, (None, numpy.array(True))),
    ("BatchNormalization", {"training_mode": 1}, [x[0]] * 4),
]:
    try:
        operators.OPERATORS[name](numpy, attributes, x, *others)
    except operators.Refused as why:
        assert "it is in training mode" in str(why), why
    else:
        raise AssertionError(name)
program = "%a = bf16[2]{0} parameter(0)\n%b = bf16[2]{0} parameter(1)\n"
assert not sessions.has_products(program, "bf16")
assert sessions.has_products(program + "%c = f32[] dot(%a, %b)", "bf16")
"#;

#[test]
fn operators_in_training_mode_are_refused_and_products_are_seen() {
    if !has_environment("jax") {
        return;
    }
    let folders = ["python", "jax"].map(|of| crate::support::checkout().join("src/backend/outside").join(of));
    let mut operators = Command::new(environment("jax").join("bin/python"));
    operators.args(["-c", OPERATORS]).args(folders).env("JAX_PLATFORMS", "cpu").finish().with_code(0);
}

/// A split whose outputs alone say into how many parts, as it may be before operator set 18.
const PARTS: &str = r#"
import sys
sys.path[:0] = sys.argv[1:]
import numpy, onnx
from graph import Graph
node = Graph._node(None, onnx.helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1))
parts = Graph._apply(node, numpy, [numpy.arange(6).reshape(1, 6)])
assert [part.tolist() for part in parts] == [[[0, 1]], [[2, 3]], [[4, 5]]], parts
"#;

#[test]
fn a_split_without_sizes_has_as_many_equal_parts_as_outputs() {
    if !has_environment("jax") {
        return;
    }
    let folders = ["python", "jax"].map(|of| crate::support::checkout().join("src/backend/outside").join(of));
    let mut parts = Command::new(environment("jax").join("bin/python"));
    parts.args(["-c", PARTS]).args(folders).env("JAX_PLATFORMS", "cpu").finish().with_code(0);
}

#[test]
fn what_jax_cannot_compile_is_unsupported_by_name() {
    if !has_environment("jax") {
        return;
    }
    let workplace = Workplace::new(&[], &["jax"], &[1]);
    workplace.add_model("falls_back.onnx", "models/exported/planted.onnx");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(3);
    let record = workplace.record("planted/jax-cpu-f32/1");
    assert_eq!(
        (record.status, record.message.as_deref()),
        (Status::Unsupported, Some("no operator TfIdfVectorizer here"))
    );
}

#[test]
fn without_its_environment_it_says_what_adds_it() {
    let workplace = Workplace::new(&["digits"], &["jax"], &[1]);
    let absent = workplace.inferbench(&["run"]).env("XDG_CACHE_HOME", workplace.path("")).finish().with_code(3);
    absent.saying(&["left out: jax on cpu (1 case): unavailable: JAX is not here; get it with `scripts/setup jax`"]);
    let folder = workplace.inferbench(&["run"]).env("INFERBENCH_JAX_PYTHON", "/usr").finish().with_code(3);
    folder.saying(&["JAX: INFERBENCH_JAX_PYTHON is \"/usr\", which is not a file: set it to the path of a Python"]);
    let mut own = Command::new("python3");
    if own.args(["-c", "import jax"]).finish().code != Some(0) {
        let other =
            workplace.inferbench(&["run"]).env("INFERBENCH_JAX_PYTHON", "/usr/bin/python3").finish().with_code(3);
        other.saying(&["unavailable: ", " lacks the package "]);
    }
}
