//! Modules that PyTorch compiles: how often, into how many graphs, in which types and settings, and what their profiles show.

use inferbench::definition::Status;
use inferbench::run_data::{OUTSIDE, Profile};

use crate::support::{Run, Workplace};
use crate::workers::has_environment;

/// A form of a model, measured and right, and what its record says.
fn right(workplace: &Workplace, id: &str) -> String {
    let record = workplace.record(id);
    assert_eq!((record.status, record.verified), (Status::Ok, Some(true)), "{id}: {:?}", record.message);
    record.message.unwrap()
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn steps_of_decoding_are_compiled_once_or_twice_whichever_cache_they_have() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["llama-small"], &["torch-compile"], &[1]);
    let arguments = ["run", "--noplot", "--phase", "decode", "--torch-mode", "default,static-cache"];
    workplace.inferbench(&arguments).finish().with_code(0);
    for (backend, cache) in [("torch-compile", "growing cache"), ("torch-compile.static-cache", "static cache of ")] {
        let says = right(&workplace, &format!("llama-small-seq32-decode/{backend}-cpu-f32/1"));
        let of_steps = says
            .split("; ")
            .find_map(|part| part.split_once(" for ")?.1.strip_suffix(" steps").map(|steps| (part, steps)));
        let (compilations, steps) = of_steps.unwrap_or_else(|| panic!("{says}"));
        let compilations: usize = compilations.split(' ').next().unwrap().parse().unwrap();
        assert!(says.contains(cache) && compilations <= 2 && steps.parse::<usize>().unwrap() >= 8, "{says}");
        assert!(says.contains(", 0 graph breaks, "), "{says}");
    }
}

/// A module that Dynamo has to leave once.
const BROKEN: &str = "import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        hidden = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(hidden)

def make():
    return Net(), (torch.randn(2, 8),)
";

#[test]
fn graph_breaks_are_counted() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&[], &["torch", "torch-compile"], &[1]);
    workplace.write("net.py", BROKEN);
    workplace.inferbench(&["run", "net.py", "--noplot"]).finish().with_code(0);
    let says = right(&workplace, "net/torch-compile-cpu-f32/1");
    assert!(says.contains("2 graphs, 1 graph break, 0 recompilations"), "{says}");
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn types_of_compiled_modules_are_shown_by_the_profile_and_the_graphs() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "bert-small"], &["torch-compile"], &[1]);
    let run = |arguments: &[&str]| {
        workplace.inferbench(&[&["run", "--noplot"], arguments].concat()).finish().with_code(0);
    };
    run(&["--model", "digits", "--dtype", "bf16", "--torch-mode", "default,autocast"]);
    for backend in ["torch-compile", "torch-compile.autocast"] {
        let says = right(&workplace, &format!("digits/{backend}-cpu-bf16/1"));
        assert!(says.contains("4 of 4 "), "{says}");
    }
    run(&["--model", "bert-small", "--variant", "int8-dynamic"]);
    let says = right(&workplace, "bert-small-int8-dynamic-seq32/torch-compile-cpu-i8/1");
    assert!(says.contains("torchao 0.") && says.contains("13 of "), "{says}");
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn settings_of_inductor_and_of_attention_are_right() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits", "bert-small"], &["torch-compile", "torch-aot"], &[1]);
    let run = |arguments: &[&str]| {
        workplace.inferbench(&[&["run", "--noplot"], arguments].concat()).finish().with_code(0);
    };
    run(&["--model", "digits", "--torch-mode", "freezing,max-autotune"]);
    for backend in ["torch-compile", "torch-aot"] {
        for setting in ["freezing", "max-autotune"] {
            let says = right(&workplace, &format!("digits/{backend}.{setting}-cpu-f32/1"));
            assert_eq!(says.contains(" autotuned"), setting == "max-autotune", "{says}");
            let counts =
                if backend == "torch-aot" { "a package of " } else { "1 graph, 0 graph breaks, 0 recompilations" };
            assert!(says.contains(counts), "{says}");
        }
    }
    run(&["--model", "bert-small", "--backend", "torch,torch-compile", "--torch-mode", "sdpa"]);
    for backend in ["torch", "torch-compile"] {
        let says = right(&workplace, &format!("bert-small-seq32/{backend}.sdpa-cpu-f32/1"));
        assert!(says.contains("transformers with attention sdpa"), "{says}");
    }
}

#[test]
fn a_profile_of_a_compiled_module_shows_fused_kernels() {
    if !has_environment("torch") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["torch-compile"], &[8]);
    let profiled = workplace.inferbench(&["profile", "--format", "json"]).finish().with_code(0);
    let profile: Profile = serde_json::from_str(&profiled.stdout).unwrap();
    let [case] = profile.cases.as_slice() else { panic!("{:?}", profile.failures) };
    let (last, rows) = case.rows.split_last().unwrap();
    assert_eq!(last.operator, OUTSIDE);
    let is_fused = |name: &str| name.contains("fused") && name.contains("relu");
    assert!(rows.iter().any(|row| is_fused(&row.operator) && row.raw_us > 0.0), "{rows:#?}");
    // Inductor leaves products to libraries.
    assert!(rows.iter().any(|row| row.operator.contains("convolution") || row.operator.contains("mm")), "{rows:#?}");
    let shown = |format: &str| {
        let arguments = ["profile", profile.run_id.as_str(), "--format", format];
        workplace.inferbench(&arguments).finish().with_code(0).stdout
    };
    let trace: serde_json::Value = serde_json::from_str(&shown("trace")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let is_event = |event: &serde_json::Value| event["ph"] == "X" && event["name"].as_str().is_some_and(is_fused);
    assert!(events.iter().any(is_event), "{trace}");
    let folded = shown("folded");
    let begin = "digits/torch-compile-cpu-f32/8;";
    assert!(folded.lines().any(|line| line.starts_with(begin) && is_fused(line)), "{folded}");
}
