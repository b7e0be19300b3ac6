use super::*;
use crate::definition::ImageFolderSettings;

const SUITE: &str = "backends = ['ort']\nbatch_sizes = [1, 8]\nmodels = [{ name = 'a', batch_sizes = [4] }, { name = 'b' }]\n[effort]\nbudget_s = 2";

#[test]
fn flags_win_over_the_file() {
    let suite: Suite = toml::from_str(SUITE).unwrap();
    assert_eq!(suite.effort.iterations, 1000);
    assert_eq!(suite.effort.budget_seconds, 2.0);
    let selection = Selection { batch_sizes: vec![2], backend: vec!["candle".into()], ..Selection::default() };
    let effort = EffortArguments { iterations: Some(7), ..EffortArguments::default() };
    let suite = suite.with_arguments(&selection, &effort).unwrap();
    assert_eq!((suite.backends, suite.batch_sizes), (vec!["candle".to_owned()], vec![2]));
    assert_eq!(suite.models[0].batch_sizes, None);
    assert_eq!((suite.effort.iterations, suite.effort.are_iterations_explicit), (7, true));
}

#[test]
fn flags_win_over_the_table_of_a_model_and_over_tests_of_tokens() {
    let suite: Suite = toml::from_str(
        "backends = ['ort']\nbatch_sizes = [1]\nmodels = [{ name = 'a', data_source = 'text:own.txt' }]\n[tokens]\npp = [512]\ntg = 128",
    )
    .unwrap();
    assert!(suite.models[0].data_source.is_some() && !suite.tokens.is_empty());
    let with = |selection: &Selection| suite.clone().with_arguments(selection, &EffortArguments::default()).unwrap();
    let text = with(&Selection { text: Some("other.txt".into()), ..Selection::default() });
    assert_eq!((&text.models[0].data_source, text.data_source), (&None, Some(DataSource::Text("other.txt".into()))));
    assert!(!text.tokens.is_empty());
    assert!(with(&Selection { seq_lens: vec![64], ..Selection::default() }).tokens.is_empty());
    assert!(with(&Selection { phase: vec![Phase::Prefill], ..Selection::default() }).tokens.is_empty());
}

#[test]
fn a_model_with_backends_of_its_own_runs_on_those_of_the_flag_in_every_form() {
    let suite: Suite = toml::from_str(
        "backends = ['ort']\nbatch_sizes = [1]\nmodels = [{ name = 'a', backends = ['torch', 'torch.sdpa'] }]",
    )
    .unwrap();
    let own = |flags: &[&str]| {
        let backend = flags.iter().map(ToString::to_string).collect();
        let selection = Selection { backend, ..Selection::default() };
        let suite = suite.clone().with_arguments(&selection, &EffortArguments::default()).unwrap();
        suite.models[0].backends.clone().unwrap()
    };
    assert_eq!(own(&["ort", "torch.autocast"]), ["torch.autocast"]);
    assert_eq!(own(&["torch@old", "torch"]), ["torch@old", "torch"]);
    assert!(own(&["ort", "torch-compile"]).is_empty());
}

#[test]
fn flags_take_names_as_people_write_them() {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        selection: Selection,
    }
    let flags = ["--dtype", "float16,FP32,half", "--backend", "PyTorch,libtorch,onnxruntime"];
    let of_llama_bench = <Flags as clap::Parser>::try_parse_from(["-p", "512", "-n", "128", "-d", "0,64"]).unwrap();
    let Selection { pp, tg, depth, .. } = of_llama_bench.selection;
    assert_eq!((pp, tg, depth), (vec![512], Some(128), vec![0, 64]));
    let several = <Flags as clap::Parser>::try_parse_from(["--tg", "64,128"]).err().unwrap().to_string();
    assert!(several.contains("not a whole number"), "{several}");
    let Flags { selection } = clap::Parser::try_parse_from(flags).unwrap();
    assert_eq!(selection.dtype, [Dtype::F16, Dtype::F32, Dtype::F16]);
    assert_eq!(selection.backend, ["torch", "tch", "ort"]);
}

#[test]
fn a_flag_is_true_or_false_and_nothing_else() {
    let command = <EffortArguments as Args>::augment_args(clap::Command::new("run"));
    for name in ["allow_failed", "debug"] {
        // `PATH` is set wherever tests run.
        let said = command.clone().mut_arg(name, |flag| flag.env("PATH")).try_get_matches_from(["run"]);
        assert!(said.unwrap_err().to_string().contains("not a boolean"));
    }
}

#[test]
fn each_mode_of_pytorch_is_a_backend() {
    let backends = ["ort", "torch", "torch-compile"].map(str::to_owned);
    let modes = |modes: &[&str]| {
        let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
        let mut backends = backends.to_vec();
        put_modes([&mut backends], &modes).map(|()| backends).map_err(|error| error.to_string())
    };
    assert_eq!(
        modes(&["default", "max-autotune.autocast"]).unwrap(),
        ["ort", "torch", "torch-compile", "torch-compile.autocast.max-autotune"]
    );
    assert!(modes(&["fast"]).unwrap_err().starts_with("PyTorch has no setting \"fast\""));
    let mut without = backends[..2].to_vec();
    let error = put_modes([&mut without], &["freezing".to_owned()]).unwrap_err().to_string();
    assert!(error.starts_with("no backend here has the mode \"freezing\""), "{error}");
    // A model whose own backends have none of the modes, and a mode that is named twice.
    let (mut own, mut all) = (vec!["ort".to_owned()], vec!["torch.sdpa".to_owned(), "torch".to_owned()]);
    put_modes([&mut own, &mut all], &["default", "sdpa", "sdpa"].map(str::to_owned)).unwrap();
    assert_eq!((own, all), (vec!["ort".to_owned()], vec!["torch.sdpa".to_owned(), "torch".to_owned()]));
}

#[test]
fn trust_is_in_the_files_that_are_named_and_can_be_taken_back() {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Flags {
        #[command(flatten)]
        selection: Selection,
    }
    let folder = tempfile::tempdir().unwrap();
    let [named, other] = ["named.pt", "other.pt"].map(|name| folder.path().canonicalize().unwrap().join(name));
    for file in [&named, &other] {
        std::fs::write(file, "").unwrap();
    }
    let suite: Suite = toml::from_str(SUITE).unwrap();
    let of_other = format!("--trust={}", other.display());
    let trusted = |flags: &[&str]| {
        let Flags { selection } = clap::Parser::try_parse_from(flags).unwrap();
        let files = Selection { path: vec![named.display().to_string()], ..selection };
        let suite = suite
            .clone()
            .with_arguments(&Selection { trust: Vec::new(), ..files.clone() }, &EffortArguments::default());
        let name = |file: &&Path| file.file_name().unwrap().to_string_lossy().into_owned();
        suite.unwrap().trusted_by(&files.trust).iter().map(name).collect::<Vec<String>>().join(" ")
    };
    assert_eq!(trusted(&[]), "");
    assert_eq!(trusted(&["--trust"]), "named.pt");
    assert_eq!(trusted(&["--trust", "--trust=false"]), "");
    assert_eq!(trusted(&["--trust=no", &of_other]), "other.pt");
    let wrong = <Flags as clap::Parser>::try_parse_from(["--trust=nobody.pt"]).err().unwrap().to_string();
    assert!(wrong.contains("neither true nor false, and no file"), "{wrong}");
    crate::paths::trust([named.as_path()]);
    assert!(crate::paths::is_trusted(&named) && !crate::paths::is_trusted(&other));
}

#[test]
fn a_duel_passes_samples_on_as_flags() {
    let source = DataSource::ImageFolder(ImageFolderSettings::new("pictures".into()));
    let selection = Selection { data_source: Some(source), time_on: Some(TimedOn::Samples), ..Selection::default() };
    let passed = serde_json::to_value(selection).unwrap();
    assert_eq!((&passed["data_source"], &passed["time_on"]), (&"image-folder:pictures".into(), &"samples".into()));
    assert!(passed["text"].is_null());
}

#[test]
fn a_budget_that_no_clock_can_hold_is_refused() {
    let suite: Suite = toml::from_str(SUITE).unwrap();
    let effort = EffortArguments { budget: Some(1e300), ..EffortArguments::default() };
    let error = suite.with_arguments(&Selection::default(), &effort).unwrap_err();
    assert!(error.to_string().starts_with("budget_s is a number"), "{error}");
}

#[test]
fn a_file_as_a_model_is_added_to_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("My Net.onnx");
    std::fs::write(&file, "").unwrap();
    let suite: Suite = toml::from_str(SUITE).unwrap();
    let selection = Selection { model: vec![file.display().to_string(), "a".into()], ..Selection::default() };
    let suite = suite.with_arguments(&selection, &EffortArguments::default()).unwrap();
    let added = suite.models.last().unwrap();
    assert_eq!((added.name.as_str(), added.path.as_deref()), ("my-net", Some(file.as_path())));
}

#[test]
fn a_dimension_that_two_flags_name_is_refused() {
    let suite: Suite = toml::from_str(SUITE).unwrap();
    let with = |dim: &[&str]| {
        let selection = Selection { dim: dim.iter().map(ToString::to_string).collect(), ..Selection::default() };
        suite.clone().with_arguments(&selection, &EffortArguments::default())
    };
    assert_eq!(with(&["height=64,96", "width=32"]).unwrap().dims, "height=64,96,width=32".parse().unwrap());
    let error = with(&["height=224", "height=384"]).unwrap_err().to_string();
    assert!(error.contains("names height twice"), "{error}");
}
