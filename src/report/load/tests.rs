use super::*;

#[test]
fn a_case_without_a_rate_has_a_sentence_of_the_lowest_one_that_failed() {
    let row = |case: &str, rate: f64, is_highest: bool| LoadResult {
        case_id: case.into(),
        rate: Some(rate),
        bound_ms: Some(5.0),
        percentile: 0.99,
        is_of_search: true,
        is_highest,
        verdict: Some(if is_highest { Verdict::Passed } else { Verdict::Failed }),
        loadgen_accepts: Some(is_highest),
        ..LoadResult::default()
    };
    let results = vec![row("a", 48.0, false), row("a", 14.2, false), row("b", 30.0, false), row("b", 20.0, true)];
    let limit = Some("the limit of 15 s is reached".to_owned());
    let undecided = Some(Verdict::Undecided);
    let open = LoadResult { verdict: undecided, loadgen_accepts: None, message: limit, ..row("c", 9.0, false) };
    let cut = vec![row("d", 6.5, false), LoadResult { case_id: "d".into(), ..open.clone() }];
    let over = Some(format!("6 of 10 queries were over 5 ms; {ENDED_HERE}the limit of 15 s is reached"));
    let ended = LoadResult { message: over, ..row("e", 6.5, false) };
    let of_trial = LoadResult { message: Some("6 of 10 queries were over 5 ms".into()), ..row("f", 6.5, false) };
    // Sorted by their rates, and the second of four was the last.
    let accepted = LoadResult { verdict: undecided, loadgen_accepts: Some(true), ..row("g", 47.7, false) };
    let last = LoadResult { case_id: "g".into(), rate: Some(52.8), ..ended.clone() };
    let sorted = vec![accepted, last, row("g", 58.4, false), row("g", 71.6, false)];
    let refused = LoadResult { verdict: undecided, ..row("h", 9.0, false) };
    let one_seed = LoadResult { loadgen_accepts: Some(true), ..refused.clone() };
    let [one, other] = [1, 2].map(|seed| LoadResult { seed, ..refused.clone() });
    let seeds = vec![one_seed, one, other, row("h", 12.0, false)];
    let results = [results, vec![open], cut, vec![ended, of_trial], sorted, seeds].concat();
    let run = LoadRun { results, ..LoadRun::default() };
    let lines = [
        "a: no rate down to 14.2/s keeps p99 ≤ 5.00 ms",
        "c: no rate was found: the limit of 15 s is reached",
        "d: no rate down to 6.50/s keeps p99 ≤ 5.00 ms; the search ended there: the limit of 15 s is reached",
        "e: no rate down to 6.50/s keeps p99 ≤ 5.00 ms; the search ended there: the limit of 15 s is reached",
        "f: no rate down to 6.50/s keeps p99 ≤ 5.00 ms",
        "g: 47.7/s keeps p99 ≤ 5.00 ms, but the highest rate that does was not found: the limit of 15 s is reached",
        "h: no rate down to 12.0/s keeps p99 ≤ 5.00 ms",
    ];
    assert_eq!(without_rate(&run), lines);
}

fn highest(instances: usize, threads: usize, rate: f64, memory_mb: f64) -> LoadResult {
    LoadResult {
        case_id: "m/ort-cpu-f32/1".into(),
        status: Status::Ok,
        verdict: Some(Verdict::Passed),
        instances,
        threads,
        rate: Some(rate),
        percentile: 0.99,
        bound_ms: Some(20.0),
        latency_ms: 15.0,
        memory_mb: Some(memory_mb),
        queries: 1000,
        samples: 1000,
        is_highest: true,
        ..LoadResult::default()
    }
}

#[test]
fn a_search_is_one_sentence_per_case() {
    let run = LoadRun {
        results: vec![highest(1, 2, 428.0, 190.0), highest(2, 1, 482.2, 310.0), highest(1, 1, 240.0, 200.0)],
        ..LoadRun::default()
    };
    assert_eq!([1.0 / 60.0, 482.2].map(per_second), ["0.0167/s", "482/s"]);
    let text = terminal(&run, true);
    let sentence = "m/ort-cpu-f32/1: 2 × 1 threads serve 482/s at p99 ≤ 20.0 ms with 310 MB; 1 × 2 serve 428/s with 190 MB; \
        1 × 1 serve 240/s with 200 MB, beaten in all\n";
    assert!(text.ends_with(sentence), "{text}");
    let with_price = |row: LoadResult| LoadResult {
        cost_per_million: Some(0.1963),
        currency: Some("USD".into()),
        energy_j_per_request: Some(0.0421),
        ..row
    };
    let run = LoadRun { results: vec![with_price(highest(2, 1, 482.2, 310.0))], ..LoadRun::default() };
    let priced = terminal(&run, true);
    assert!(priced.contains("with 310 MB and 42.1 mJ a request for 0.20 USD per million\n"), "{priced}");
    let frugal = LoadResult { energy_j_per_request: Some(0.01), ..highest(1, 1, 240.0, 400.0) };
    let wasteful = LoadResult { energy_j_per_request: Some(0.02), ..highest(2, 1, 482.2, 310.0) };
    let run = LoadRun { results: vec![frugal, wasteful], ..LoadRun::default() };
    let text_with_energy = terminal(&run, true);
    assert!(!text_with_energy.contains("beaten"), "{text_with_energy}");
    assert!(text.contains("passed p99 ≤ 20.0 ms") && !text.contains("lag p99"), "{text}");
}

#[test]
fn a_search_shows_its_answer_and_how_certain_it_is() {
    let trial = |rate: f64, accepts: bool, search: usize| LoadResult {
        is_of_search: true,
        is_highest: false,
        loadgen_accepts: Some(accepts),
        completed_per_s: rate,
        search,
        ..highest(2, 1, rate, 310.0)
    };
    let best = |rate: f64, search: usize| LoadResult {
        is_highest: true,
        lowest_failing_rate: Some(rate + 5.0),
        found_rate: Some(482.0),
        found_rate_lower: Some(471.3),
        found_rate_upper: Some(492.9),
        searches: Some(2),
        searches_with_rate: Some(2),
        ..trial(rate, true, search)
    };
    let results = vec![
        trial(111.0, true, 0),
        best(480.0, 0),
        trial(485.0, false, 0),
        trial(700.0, false, 0),
        best(484.0, 1),
        trial(489.0, false, 1),
        LoadResult { is_knee: true, ..trial(333.0, true, 0) },
    ];
    let run = LoadRun { results, ..LoadRun::default() };
    let text = terminal(&run, false);
    for shown in ["480/s", "484/s", "485/s", "489/s", "333/s", "5 of 7 trials are shown", "rejects"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("111/s") && !text.contains("700/s"), "{text}");
    let sentence = "2 × 1 threads serve 482/s (471 … 493, 95 % interval of 2 searches) at p99 ≤ 20.0 ms with 310 MB\n";
    assert!(text.ends_with(sentence), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert!(terminal(&run, true).contains("700/s"));
}

#[test]
fn a_search_in_which_no_rate_failed_shows_its_highest_rate_only() {
    let trial = |rate: f64| LoadResult {
        is_of_search: true,
        is_highest: false,
        loadgen_accepts: Some(true),
        ..highest(2, 1, rate, 310.0)
    };
    let shown = |results| terminal(&LoadRun { results, ..LoadRun::default() }, false);
    let text = shown(vec![trial(111.0), LoadResult { is_highest: true, ..trial(480.0) }]);
    assert!(text.contains("1 of 2 trials are shown") && !text.contains("111/s"), "{text}");
    let without_answer = shown(vec![trial(111.0), trial(480.0)]);
    assert!(without_answer.contains("480/s") && without_answer.contains("111/s"), "{without_answer}");
}

#[test]
fn the_newest_curve_of_a_case_has_the_trials_that_say_something() {
    let run = |rates: &[f64]| LoadRun {
        results: rates.iter().map(|&rate| LoadResult { completed_per_s: rate, ..highest(2, 1, rate, 1.0) }).collect(),
        ..LoadRun::default()
    };
    let mut newer = run(&[100.0, 200.0, 300.0, 400.0]);
    newer.results[2].verdict = Some(Verdict::Invalid);
    newer.results[3].ended_early = true;
    let found = curves([run(&[50.0, 60.0, 70.0]), newer, run(&[1.0])].into_iter());
    let place = (String::new(), "m/ort-cpu-f32/1".to_owned());
    let rates: Vec<f64> = found[&place].iter().map(|point| point.per_s).collect();
    assert_eq!(rates, [100.0, 200.0]);
    assert_eq!(found[&place][0].split, "2 × 1");
}

#[test]
fn a_case_without_figures_says_why() {
    let row = LoadResult { status: Status::Unsupported, message: Some("no".into()), ..LoadResult::default() };
    let text = markdown(&LoadRun { results: vec![row], ..LoadRun::default() }, false);
    assert!(text.contains("| unsupported | no |") && !text.contains("p50"), "{text}");
}
