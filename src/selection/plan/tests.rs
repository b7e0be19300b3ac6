use super::*;
use crate::definition::{Dimension, ElementType, ORIGINAL, TensorSpec};

struct OnlyOrt;

impl Capabilities for OnlyOrt {
    fn check_device(&self, backend: &str, _: &str) -> Result<(), CaseFailure> {
        if backend == "ort" { Ok(()) } else { Err(CaseFailure::unavailable("not in this build")) }
    }
    fn check_model(&self, _: &str, _: &Model, _: Dtype) -> Result<(), CaseFailure> {
        Ok(())
    }
}

fn entry(name: &str, batch: Dimension) -> Entry {
    let input = TensorSpec::new("x", ElementType::F32, vec![batch, Dimension::Fixed(3)]);
    let model = Model { family: "cnn".into(), ..Model::of_tensors(name, vec![input], Vec::new()) };
    Entry::new(name.into(), ORIGINAL.into(), Place::Zoo, Ok(model))
}

fn suite(models: &[&str]) -> Suite {
    let models = models.iter().map(|name| SuiteModel { name: name.to_string(), ..SuiteModel::default() }).collect();
    let backends = vec!["ort".into(), "tch".into()];
    Suite { models, dtypes: vec![Dtype::F32], batch_sizes: vec![1, 8], ..Suite::new("s", backends) }
}

#[test]
fn a_case_that_cannot_run_stays_in_the_plan_with_its_reason() {
    let catalogue = [entry("a", Dimension::Symbol(BATCH.into())), entry("b", Dimension::Fixed(1))];
    let cases = plan(&suite(&["a", "b"]), &Selection::default(), &catalogue, &OnlyOrt).unwrap();
    let statuses: Vec<(String, Option<Status>)> = cases
        .iter()
        .map(|planned| (planned.case.to_string(), planned.model.as_ref().err().map(|s| s.status)))
        .collect();
    // A model with a fixed batch size is measured only at that size.
    assert_eq!(statuses.len(), 6);
    assert_eq!(statuses[0], ("a/ort-cpu-f32/1".into(), None));
    assert_eq!(statuses[1], ("a/tch-cpu-f32/1".into(), Some(Status::Unavailable)));
    assert_eq!(statuses[4], ("b/ort-cpu-f32/1".into(), None));
}

#[test]
fn lengths_of_sequences_are_for_at_least_one_of_the_models() {
    let catalogue = ["sequence", "steps"].map(|name| entry(name, Dimension::Symbol(name.into())));
    let selection = Selection { seq_lens: vec![7], ..Selection::default() };
    let asked = |models: &[&str]| {
        let suite = Suite { seq_lens: Some(vec![7]), ..suite(models) };
        plan(&suite, &selection, &catalogue, &OnlyOrt).map(|cases| cases[0].case.sequence_length)
    };
    assert_eq!(asked(&["sequence", "steps"]).unwrap(), Some(7));
    let error = asked(&["steps"]).unwrap_err().to_string();
    assert!(error.starts_with("`--seq-lens` is for models that leave a size called `sequence` open"), "{error}");
}

#[test]
fn auto_is_the_first_device_that_is_there_and_a_dtype_that_nobody_names_is_the_devices_own() {
    struct OnlyMps;
    impl Capabilities for OnlyMps {
        fn check_device(&self, _: &str, device: &str) -> Result<(), CaseFailure> {
            if matches!(device, "mps" | "cpu" | "qnn") { Ok(()) } else { Err(CaseFailure::unavailable("no")) }
        }
        fn check_model(&self, _: &str, _: &Model, _: Dtype) -> Result<(), CaseFailure> {
            Ok(())
        }
    }
    let asked = Suite {
        backends: vec!["ort".into()],
        devices: ["auto", "qnn", "mps"].map(str::to_owned).to_vec(),
        dtypes: Vec::new(),
        batch_sizes: vec![1],
        ..suite(&["a"])
    };
    let cases = plan(&asked, &Selection::default(), &[entry("a", Dimension::Fixed(1))], &OnlyMps).unwrap();
    let ids: Vec<String> = cases.iter().map(|planned| planned.case.to_string()).collect();
    assert_eq!(ids, ["a/ort-mps-f32/1", "a/ort-qnn-f16/1"]);
}

#[test]
fn each_form_of_a_model_runs_as_the_table_of_its_file_says() {
    let form = |variant: &str| {
        let entry = entry("mine", Dimension::Symbol(BATCH.into()));
        Entry { variant: variant.into(), place: Place::Suite, ..entry }
    };
    let catalogue = [form(ORIGINAL), form("int8")];
    let path = Some("net.onnx".into());
    let first = SuiteModel { name: "mine".into(), path, ..SuiteModel::default() };
    let int8 = SuiteModel { variant: Some("int8".into()), batch_sizes: Some(vec![4]), ..first.clone() };
    let asked = Suite { backends: vec!["ort".into()], models: vec![first, int8], ..suite(&[]) };
    let cases = plan(&asked, &Selection::default(), &catalogue, &OnlyOrt).unwrap();
    let ids: Vec<String> = cases.iter().map(|planned| planned.case.to_string()).collect();
    assert_eq!(ids, ["mine/ort-cpu-f32/1", "mine/ort-cpu-f32/8", "mine-int8/ort-cpu-f32/4"]);
}

#[test]
fn tables_of_one_name_have_other_variants_or_the_same_settings() {
    let form = |variant: &str| Entry { variant: variant.into(), ..entry("a", Dimension::Symbol(BATCH.into())) };
    let catalogue = [form(ORIGINAL), form("int8"), form("pruned")];
    let table = |variants: &[&str], batch_size: usize| SuiteModel {
        variants: (!variants.is_empty()).then(|| variants.iter().map(ToString::to_string).collect()),
        batch_sizes: Some(vec![batch_size]),
        name: "a".into(),
        ..SuiteModel::default()
    };
    let plan = |models: Vec<SuiteModel>, variant: &str| {
        let asked = Suite { backends: vec!["ort".into()], models, ..suite(&[]) };
        let variant = (!variant.is_empty()).then(|| variant.to_owned()).into_iter().collect();
        let cases = plan(&asked, &Selection { variant, ..Selection::default() }, &catalogue, &OnlyOrt);
        let cases = cases.map_err(|error| error.to_string())?;
        Ok::<_, String>(cases.iter().map(|planned| planned.case.to_string()).collect::<Vec<_>>().join(" "))
    };
    let (original, int8) = ("a/ort-cpu-f32/1", "a-int8/ort-cpu-f32/4");
    assert_eq!(plan(vec![table(&[], 1), table(&["int8"], 4)], ""), Ok(format!("{original} {int8}")));
    assert_eq!(plan(vec![table(&[], 1), table(&["int8"], 4)], "int8"), Ok(int8.into()));
    assert_eq!(plan(vec![table(&[], 1), table(&[], 1)], ""), Ok(original.into()));
    // A variant that no table names runs as the suite says, if the tables do not agree.
    let sizes = "a-pruned/ort-cpu-f32/1 a-pruned/ort-cpu-f32/8";
    assert_eq!(plan(vec![table(&[], 1), table(&["int8"], 4)], "pruned"), Ok(sizes.into()));
    let error = plan(vec![table(&[], 1), table(&["all"], 4)], "").unwrap_err();
    assert!(error.starts_with("two tables of the suite give a original different batch sizes"), "{error}");
    let on = |backend: &str| SuiteModel { backends: Some(vec![backend.to_owned()]), ..table(&[], 1) };
    assert_eq!(plan(vec![on("ort"), on("ort")], ""), Ok(original.into()));
    let error = plan(vec![on("ort"), on("tch")], "").unwrap_err();
    assert!(error.contains("samples, judges or backends, and it runs once"), "{error}");
}

#[test]
fn a_model_that_is_asked_for_by_name_runs_as_its_table_says_if_the_suite_has_one() {
    let of =
        |name: &str, variant: &str| Entry { variant: variant.into(), ..entry(name, Dimension::Symbol(BATCH.into())) };
    let catalogue = [of("a", ORIGINAL), of("a", "int8"), of("b", ORIGINAL), of("b", "int8")];
    let name = "a".to_owned();
    let (variants, batch_sizes) = (Some(vec!["int8".to_owned()]), Some(vec![4]));
    let models = vec![SuiteModel { name, variants, batch_sizes, ..SuiteModel::default() }];
    let asked = Suite { backends: vec!["ort".into()], models, ..suite(&[]) };
    let ids = |model: &str, variant: &[&str]| {
        let variant = variant.iter().map(ToString::to_string).collect();
        let selection = Selection { model: vec![model.to_owned()], variant, ..Selection::default() };
        let cases = plan(&asked, &selection, &catalogue, &OnlyOrt).unwrap();
        cases.iter().map(|planned| planned.case.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids("a", &[]), ["a-int8/ort-cpu-f32/4"]);
    assert_eq!(ids("a", &[ORIGINAL]), ["a/ort-cpu-f32/4"]);
    assert_eq!(ids("b", &[]), ["b/ort-cpu-f32/1", "b/ort-cpu-f32/8"]);
}

#[test]
fn an_unknown_model_is_an_error_that_lists_the_known_ones() {
    let catalogue = ["a", "digits"].map(|name| entry(name, Dimension::Fixed(1)));
    for (name, message) in [("c", "\"c\";"), ("digit", "\"digit\" (did you mean digits?);")] {
        let error = plan(&suite(&[name]), &Selection::default(), &catalogue, &OnlyOrt).unwrap_err();
        assert_eq!(error.to_string(), format!("no model {message} there are a, digits"));
    }
    let (model, variant) = (vec!["digits".into()], vec!["Original".into()]);
    let error = plan(&suite(&["a"]), &Selection { model, variant, ..Selection::default() }, &catalogue, &OnlyOrt);
    let expected = "digits has no variant \"Original\" (did you mean original?); there are original, or `all`";
    assert_eq!(error.unwrap_err().to_string(), expected);
    let selection = Selection { model: vec!["nets/c.onnx".into()], ..Selection::default() };
    let error = plan(&suite(&["a"]), &selection, &catalogue, &OnlyOrt).unwrap_err();
    assert_eq!(error.to_string(), "there is no file \"nets/c.onnx\", and no model of that name");
}
