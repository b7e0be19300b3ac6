//! Recorded arrivals: when requests came, and how long their prompts and answers were.

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::lengths::tokens;

/// The requests of a trace, in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// In nanoseconds since the first request.
    pub arrivals_ns: Vec<u64>,
    /// The tokens of prompts and answers, if the trace has them.
    pub lengths: Option<Vec<[usize; 2]>>,
}

/// Reads CSV with a header: `time` in seconds, and for language models `input` and `output` in tokens. Times never
/// decrease. Other columns are ignored, and the first request comes at once.
///
/// # Errors
/// A column or a value is missing or wrong; the message has the number of the line.
pub fn parse_trace(text: &str) -> Result<Arrivals> {
    const LONGEST: f64 = 1e9;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    ensure!(!text.trim().is_empty(), "the file is empty: the first line is a header with `time`");
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let column = |name: &str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let line = |position: Option<&csv::Position>| line_of(text, position.map_or(0, csv::Position::byte));
    let time = column("time")
        .with_context(|| format!("line {}: the header has no column `time`, in seconds", line(header.position())))?;
    let lengths = match (column("input"), column("output")) {
        (Some(input), Some(output)) => Some([input, output]),
        (None, None) => None,
        _ => bail!("the header has one of the columns `input` and `output`, and not both"),
    };
    let mut requests: Vec<(f64, [usize; 2])> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| match error.kind() {
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                anyhow!("line {}: {len} columns, and the header has {expected_len}", line(pos.as_ref()))
            }
            _ => anyhow!("{error}"),
        })?;
        let line = line(record.position());
        let value = |column: usize| record.get(column).unwrap_or_default();
        let seconds: Option<f64> = value(time).parse().ok();
        let seconds = seconds.with_context(|| format!("line {line}: the time is not a number"))?;
        ensure!((0.0..LONGEST).contains(&seconds), "line {line}: the time is not from 0 to {LONGEST} s");
        let before = requests.last().map_or(0.0, |request| request.0);
        ensure!(
            seconds >= before,
            "line {line}: the time is before that of the previous request: sort the lines by `time`"
        );
        let mut of_request = [0, 0];
        for (number, column) in of_request.iter_mut().zip(lengths.into_iter().flatten()) {
            *number =
                tokens(value(column), "the tokens are not a whole number").with_context(|| format!("line {line}"))?;
        }
        requests.push((seconds, of_request));
    }
    ensure!(!requests.is_empty(), "there is no request");
    let first = requests[0].0;
    Ok(Arrivals {
        arrivals_ns: requests.iter().map(|(seconds, _)| ((seconds - first) * 1e9).round() as u64).collect(),
        lengths: lengths.map(|_| requests.iter().map(|(_, tokens)| *tokens).collect()),
    })
}

/// The number of the line with the record that is read from this byte on, after empty lines and comments.
fn line_of(text: &str, byte: u64) -> usize {
    let place = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    let (before, rest) = text.as_bytes().split_at(place);
    let is_skipped = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
    let ends = before.iter().filter(|byte| **byte == b'\n').count();
    1 + ends + rest.split(|byte| *byte == b'\n').take_while(is_skipped).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_says_when_requests_come_and_how_long_they_are() {
        let read = parse_trace("# of a day\nTime, user, input, output\n2,b,20,4\n2.5,a,10,3\n\n4.25,a,30,5\n").unwrap();
        assert_eq!(read.arrivals_ns, [0, 500_000_000, 2_250_000_000]);
        assert_eq!(read.lengths, Some(vec![[20, 4], [10, 3], [30, 5]]));
        assert_eq!(
            parse_trace("time\n0\n1\n").unwrap(),
            Arrivals { arrivals_ns: vec![0, 1_000_000_000], lengths: None }
        );
        assert_eq!(parse_trace("\u{feff}time\r\n0\r\n1\r\n").unwrap(), parse_trace("time\n0\n1\n").unwrap());
        for (text, why) in [
            ("", "empty"),
            (" \n", "empty"),
            ("seconds\n1\n", "line 1: the header has no column `time`"),
            ("0.5\n1\n", "line 1: the header has no column `time`"),
            ("# x\nseconds\n1\n", "line 2: the header"),
            ("time\nNaN\n", "line 2"),
            ("time\ninf\n", "line 2"),
            ("time\n1\n\n\n0.5\n", "line 5: the time is before"),
            ("time,input,output\r\n1,2,3\r\n2,2\r\n", "line 3: 2 columns"),
            ("time,input,output\r\n1,2,3\r\n2,2.5,1\r\n", "line 3: the tokens"),
            ("time,input,output\n1,-2,3\n", "line 2: the tokens"),
            ("time,input\n1,2\n", "not both"),
            ("time\nx\n", "line 2"),
            ("time\n1\n-1\n", "line 3"),
            ("time,input,output\n1,0,4\n", "line 2"),
            ("time\n", "no request"),
        ] {
            let error = format!("{:#}", parse_trace(text).unwrap_err());
            assert!(error.contains(why) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}
