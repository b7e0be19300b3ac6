//! The figures of answers that consist of tokens, and what they mean.

use super::served::{Served, Trial};
use crate::run_data::{LoadResult, with_note};
use crate::statistics::{SortedCalls, mean};

/// Adds the figures of tokens to the row of a trial, if answers have tokens.
pub fn with_tokens(result: LoadResult, trial: &Trial) -> LoadResult {
    let answered: Vec<&Served> = trial.served.iter().filter(|request| request.tokens > 0).collect();
    let sum = |of: fn(&Served) -> usize| answered.iter().map(|request| of(request)).sum::<usize>();
    if answered.is_empty() {
        return result;
    }
    let per_token: Vec<f64> = answered.iter().filter_map(|request| request.tpot_ns()).collect();
    let of_first = answered.iter().filter_map(|request| request.ttft_ns());
    let [ttft_mean_ms, ttft_p50_ms, ttft_p99_ms] = in_ms(of_first.map(|ns| ns as f64));
    let [tpot_mean_ms, tpot_p50_ms, tpot_p99_ms] = in_ms(per_token.iter().copied());
    let [itl_mean_ms, itl_p50_ms, itl_p99_ms] = in_ms(trial.token_gaps_ns.iter().map(|&ns| ns as f64));
    let at_once = answered.iter().filter(|request| request.came_at_once()).count();
    let of_several = answered.iter().filter(|request| request.tokens > 1).count();
    let message = (at_once > 0).then(|| {
        format!("{at_once} of {of_several} answers of several tokens came at once: they have no TPOT, and break any bound of it")
    });
    let message = match message {
        Some(message) => with_note(result.message.clone(), message),
        None => result.message.clone(),
    };
    // By the mean TPOT: the rate of a request whose tokens came nearly at once is huge, and says little.
    let user_rate = (!per_token.is_empty()).then(|| 1e9 / mean(&per_token)).filter(|rate| rate.is_finite());
    let known = |tokens: usize| Some(tokens).filter(|tokens| *tokens > 0);
    let output_tokens = sum(|request| request.tokens);
    LoadResult {
        message,
        // A server may not report them.
        prompt_tokens: known(sum(|request| request.prompt_tokens)),
        output_tokens: Some(output_tokens),
        ttft_mean_ms,
        ttft_p50_ms,
        ttft_p99_ms,
        tpot_mean_ms,
        tpot_p50_ms,
        tpot_p99_ms,
        itl_mean_ms,
        itl_p50_ms,
        itl_p99_ms,
        output_tokens_per_s: Some(output_tokens as f64 / result.seconds),
        user_tokens_per_s: user_rate,
        ..result
    }
}

/// The mean, the median and p99 of times in nanoseconds, as milliseconds. They are absent if there are no times.
fn in_ms(ns: impl Iterator<Item = f64>) -> [Option<f64>; 3] {
    let ns: Vec<f64> = ns.collect();
    let Some(sorted) = SortedCalls::new(ns.iter().map(|ns| ns.round() as u64).collect()) else { return [None; 3] };
    [mean(&ns), sorted.percentile(0.5) as f64, sorted.percentile(0.99) as f64].map(|ns| Some(ns / 1e6))
}

/// What the figures of language models mean, with the source of each.
pub const DEFINITIONS: [(&str, &str); 5] = [
    (
        "TTFT",
        "time to first token: first token − scheduled arrival of the request, on the host (MLPerf Inference, Llama 2 70B; `vllm bench serve` \
         counts from sending)",
    ),
    (
        "TPOT",
        "time per output token of a request: (last token − first token) / (tokens − 1) (`vllm bench serve`; AIPerf calls it inter-token latency)",
    ),
    ("ITL", "inter-token latency: every gap between two tokens of an answer, over all requests (`vllm bench serve`)"),
    (
        "tokens/s",
        "output tokens / seconds from the first arrival to the last answer (`vllm bench serve`, AIPerf); per user: 1 / the mean TPOT",
    ),
    (
        "goodput",
        "requests per second that keep all bounds, of the latency, TTFT and TPOT (AIPerf, `vllm bench serve`; for Zhong et al. 2024, \
         \"DistServe\", the highest such rate per GPU)",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_tokens_are_those_of_their_definitions() {
        let request = |scheduled_ms: u64, tokens_ms: &[u64]| Served {
            scheduled_ns: scheduled_ms * 1_000_000,
            first_token_ns: tokens_ms[0] * 1_000_000,
            ended_ns: tokens_ms[tokens_ms.len() - 1] * 1_000_000,
            batch: 1,
            prompt_tokens: 10,
            tokens: tokens_ms.len(),
            ..Served::default()
        };
        let trial = Trial {
            served: vec![request(0, &[30, 40, 60]), request(50, &[100, 140]), request(60, &[160])],
            token_gaps_ns: vec![10_000_000, 20_000_000, 40_000_000],
            ..Trial::default()
        };
        let found = with_tokens(LoadResult { seconds: 0.16, ..LoadResult::default() }, &trial);
        assert_eq!((found.prompt_tokens, found.output_tokens), (Some(30), Some(6)));
        assert_eq!((found.ttft_mean_ms, found.ttft_p50_ms, found.ttft_p99_ms), (Some(60.0), Some(50.0), Some(100.0)));
        // 15 ms and 40 ms: the third request has no token after its first.
        assert_eq!((found.tpot_mean_ms, found.tpot_p50_ms, found.tpot_p99_ms), (Some(27.5), Some(15.0), Some(40.0)));
        assert_eq!((found.itl_p50_ms, found.itl_p99_ms), (Some(20.0), Some(40.0)));
        assert!((found.output_tokens_per_s.unwrap() - 37.5).abs() < 1e-9);
        assert!((found.user_tokens_per_s.unwrap() - 1e3 / 27.5).abs() < 1e-9);
        let without = Trial { served: vec![Served::default()], ..Trial::default() };
        assert_eq!(with_tokens(LoadResult::default(), &without), LoadResult::default());
    }
}
