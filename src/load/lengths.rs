//! How many tokens the prompts and answers of a load test have.

use anyhow::{Context, Result, ensure};

use crate::run_data::{RequestLengths, TokenLength};
use crate::statistics::uniform;

/// The most tokens of a prompt or an answer.
const MOST_TOKENS: usize = 1 << 20;
/// The distance between the seeds of two successive requests.
const SEED_STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// The tokens of the prompt and of the answer of request `number`. They depend on the seed and the number only. `usual`
/// is the pair of the case.
pub fn lengths_of(lengths: &RequestLengths, seed: u64, number: usize, usual: [usize; 2]) -> [usize; 2] {
    match lengths {
        RequestLengths::Listed(all) => all.get(number % all.len().max(1)).copied().unwrap_or(usual),
        RequestLengths::Drawn { prompt, output } => {
            let mut state = seed ^ (number as u64).wrapping_mul(SEED_STEP);
            let [of_prompt, of_output] = usual;
            [(prompt, of_prompt), (output, of_output)]
                .map(|(length, usual)| length.map_or(usual, |length| drawn(length, &mut state)))
        }
    }
}

fn drawn(length: TokenLength, state: &mut u64) -> usize {
    match length {
        TokenLength::Fixed(tokens) => tokens,
        TokenLength::LogNormal { median, sigma } => {
            // Box and Muller.
            let radius = (-2.0 * uniform(state).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * uniform(state)).cos();
            ((median * (sigma * normal).exp()).round() as usize).clamp(1, MOST_TOKENS)
        }
    }
}

/// Reads `32`, or `lognormal:32,0.5`: the median and the standard deviation of the logarithm.
///
/// # Errors
/// It is neither.
pub fn parse_token_length(text: &str) -> Result<TokenLength> {
    let tokens = |text| tokens(text, "write a number of tokens, or lognormal:32,0.5");
    let Some(parameters) = text.strip_prefix("lognormal:") else { return Ok(TokenLength::Fixed(tokens(text)?)) };
    let (median, sigma) = parameters.split_once(',').context("write it as lognormal:32,0.5")?;
    let sigma: f64 = sigma.trim().parse().context("a standard deviation is a number, as in lognormal:32,0.5")?;
    ensure!((0.0..=3.0).contains(&sigma), "the standard deviation of the logarithm is from 0 to 3");
    Ok(TokenLength::LogNormal { median: tokens(median)? as f64, sigma })
}

/// Reads a number of tokens. `advice` is the message if the text is not a number.
pub(super) fn tokens(text: &str, advice: &'static str) -> Result<usize> {
    let number = text.trim().parse().context(advice)?;
    ensure!((1..=MOST_TOKENS).contains(&number), "the number of tokens is from 1 to {MOST_TOKENS}");
    Ok(number)
}

/// Reads lines of two numbers, the tokens of a prompt and of its answer, which a tab separates. Lines that begin with `#` are comments.
///
/// # Errors
/// A line has another form (the message has its number), or there is no line with numbers.
pub fn parse_lengths(text: &str) -> Result<Vec<[usize; 2]>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let read = |line: &str| -> Result<[usize; 2]> {
        let (prompt, output) = line.split_once('\t').context("no tab between the tokens of prompt and answer")?;
        let tokens = |text| tokens(text, "the tokens are not a whole number");
        Ok([tokens(prompt)?, tokens(output)?])
    };
    let lengths = lines.map(|(place, line)| read(line).with_context(|| format!("line {}", place + 1)));
    let lengths = lengths.collect::<Result<Vec<_>>>()?;
    ensure!(!lengths.is_empty(), "there is no line with the tokens of a prompt and of its answer");
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{mean, variance};

    #[test]
    fn lengths_are_those_of_the_distribution_and_of_the_seed() {
        let length = |text: &str| Some(parse_token_length(text).unwrap());
        let lengths = RequestLengths::Drawn { prompt: length("lognormal:400,0.5"), output: length("7") };
        let of = |seed, number| lengths_of(&lengths, seed, number, [1, 2]);
        let logarithms: Vec<f64> = (0..20_000).map(|number| (of(3, number)[0] as f64).ln()).collect();
        assert!((mean(&logarithms) - 400.0_f64.ln()).abs() < 0.02, "{}", mean(&logarithms));
        assert!((variance(&logarithms).sqrt() - 0.5).abs() < 0.02, "{}", variance(&logarithms));
        assert!((0..100).all(|number| of(3, number)[1] == 7));
        assert_eq!(of(3, 5), of(3, 5));
        assert_ne!((0..9).map(|it| of(3, it)).collect::<Vec<_>>(), (0..9).map(|it| of(4, it)).collect::<Vec<_>>());
        assert_eq!(lengths_of(&RequestLengths::Drawn { prompt: None, output: None }, 1, 1, [5, 6]), [5, 6]);
    }

    #[test]
    fn a_file_has_a_request_per_line() {
        let listed = RequestLengths::Listed(parse_lengths("# prompt\tanswer\n32\t8\n\n100\t20\n").unwrap());
        let of = |number| lengths_of(&listed, 1, number, [0, 0]);
        assert_eq!([of(0), of(1), of(2)], [[32, 8], [100, 20], [32, 8]]);
        assert_eq!(parse_lengths("\u{feff}# of Windows\r\n32\t8\r\n").unwrap(), [[32, 8]]);
        for (text, message) in [
            ("32 8", "line 1"),
            ("1\t2\n0\t3", "line 2"),
            ("1\t2\n\nx\t3", "line 3: the tokens are not a whole number"),
            ("# nothing\n", "no line"),
        ] {
            let error = format!("{:#}", parse_lengths(text).unwrap_err());
            assert!(error.contains(message), "{error}");
        }
        for text in ["", "0", "lognormal:32", "lognormal:0,1", "lognormal:32,-1", "normal:3,4"] {
            assert!(parse_token_length(text).is_err(), "{text:?}");
        }
    }
}
