//! Values that several commands read in the same way.

use anyhow::{Context, Result, ensure};

/// Reads a number. The error message has the example.
fn number(text: &str, example: &str) -> Result<f64> {
    text.parse().ok().with_context(|| format!("not a number; write {example}"))
}

/// Reads how many there are.
pub fn count(text: &str) -> Result<usize> {
    text.parse().ok().context("not a whole number; write 4")
}

/// Reads how many there are, of which there is one at least.
pub fn count_from_one(text: &str) -> Result<usize> {
    let count = count(text)?;
    ensure!(count > 0, "must be 1 or more");
    Ok(count)
}

/// Reads a fraction from 0 on: `5%` or `0.05`. A larger number needs its `%`, since it may be meant in per cent.
fn fraction(text: &str) -> Result<f64> {
    let fraction = fraction_of_one(text)?;
    ensure!(text.ends_with('%') || fraction < 0.2, "a number from 0.2 on needs a %; write 5% or 0.05");
    Ok(fraction)
}

/// Reads a fraction such as a confidence level, which is never meant in per cent without its `%`.
pub fn fraction_of_one(text: &str) -> Result<f64> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number = number(digits, "5% or 0.05")?;
    ensure!(number.is_finite() && number >= 0.0, "must be 0 or more; write 5% or 0.05");
    ensure!(unit > 1.0 || number < 1.0, "a number from 1 on needs a %; write 5% or 0.05");
    Ok(number / unit)
}

/// Reads a number of per cent: `0.5%` or `0.5`.
pub fn per_cent(text: &str) -> Result<f64> {
    number(text.strip_suffix('%').unwrap_or(text).trim_end(), "0.5%")
}

/// Reads a fraction from 0 to below 1.
pub fn fraction_below_one(text: &str) -> Result<f64> {
    let fraction = fraction(text)?;
    ensure!(fraction < 1.0, "must be below 100 %");
    Ok(fraction)
}

/// Reads the confidence of an interval.
pub fn confidence(text: &str) -> Result<f64> {
    let fraction = fraction_of_one(text)?;
    ensure!((0.5..1.0).contains(&fraction), "must be from 50 % to below 100 %");
    Ok(fraction)
}

/// Reads a number with one of these units, and multiplies it by the unit's size.
fn with_unit(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64> {
    let of_unit = |(unit, size): &(&str, f64)| Some((text.strip_suffix(unit)?.trim_end(), *size));
    let (digits, size) = units.iter().find_map(of_unit).with_context(|| format!("no unit; write {example}"))?;
    let number: f64 = digits.parse().ok().with_context(|| format!("not a number with a unit; write {example}"))?;
    Ok(number * size)
}

/// Reads a size above 0 as megabytes: `1GB`, `200MB`.
pub fn megabytes(text: &str) -> Result<f64> {
    let size = with_unit(text, &[("GB", 1e3), ("MB", 1.0), ("kB", 1e-3)], "1GB or 200MB")?;
    ensure!(size.is_finite() && size > 0.0, "must be above 0");
    Ok(size)
}

/// Reads minutes above 0 and up to a day.
pub fn minutes(text: &str) -> Result<f64> {
    let minutes = number(text, "a number of minutes, such as 20 or 0.5")?;
    ensure!(minutes > 0.0 && minutes <= 24.0 * 60.0, "must be above 0 and at most a day");
    Ok(minutes)
}

/// Reads a time above 0 and up to a day with its unit, as in `20ms`, and returns seconds.
pub fn duration(text: &str) -> Result<f64> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0), ("s", 1.0)];
    let seconds = with_unit(text, &UNITS, "20ms, 10s or 5min")?;
    ensure!(seconds > 0.0 && seconds <= 86_400.0, "must be above 0 and at most a day");
    Ok(seconds)
}

/// Reads a number of seconds, or a time with its unit.
pub fn seconds(text: &str) -> Result<f64> {
    text.parse::<f64>().or_else(|_| duration(text)).context("write seconds, as 2.5, or a time with its unit, as 300ms")
}

/// Reads a number per second above 0: `300/s` or `300`.
pub fn rate(text: &str) -> Result<f64> {
    let number = number(text.strip_suffix("/s").unwrap_or(text).trim_end(), "requests per second, such as 300/s")?;
    ensure!(number.is_finite() && number > 0.0, "must be above 0");
    Ok(number)
}

/// Reads a factor from 1 on: `1.02x` or `1.02`.
pub fn factor(text: &str) -> Result<f64> {
    let number = number(text.strip_suffix('x').unwrap_or(text), "1.02x")?;
    ensure!(number.is_finite() && number >= 1.0, "must be 1 or more");
    Ok(number)
}

/// Reads a number above 0.
pub fn above_zero(text: &str) -> Result<f64> {
    let number = number(text, "0.02")?;
    ensure!(number.is_finite() && number > 0.0, "must be above 0");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        for (text, expected) in [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("0", 0.0), ("3000%", 30.0)] {
            assert_eq!(fraction(text).unwrap(), expected, "{text}");
        }
        for bad in ["5", "x", "-1%", "nan", "inf%", ""] {
            assert!(fraction(bad).is_err(), "{bad:?}");
        }
        assert!(fraction("5").unwrap_err().to_string().contains("needs a %"));
        for (text, seconds) in
            [("20ms", 0.02), ("10 s", 10.0), ("5min", 300.0), ("1.5h", 5400.0), ("50us", 5e-5), ("50µs", 5e-5)]
        {
            assert!((duration(text).unwrap() / seconds - 1.0).abs() < 1e-12, "{text}");
        }
        for bad in ["5", "ms", "-1s", "0s", "nans", "infs", "25h", ""] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(["2.5", "250ms", "soon"].map(|text| seconds(text).ok()), [Some(2.5), Some(0.25), None]);
        assert_eq!((rate("300/s").unwrap(), rate("0.5").unwrap(), rate("0/s").is_err()), (300.0, 0.5, true));
        let said = [minutes("5s"), rate("100/min")].map(|read| read.unwrap_err().to_string());
        assert!(said[0].contains("write a number of minutes") && said[1].contains("per second"), "{said:?}");
        let sizes = ["1GB", "200 MB", "3", "0MB"].map(|text| megabytes(text).ok());
        assert_eq!(sizes, [Some(1000.0), Some(200.0), None, None]);
        assert_eq!(
            ["0.5%", "0.5 %", "0.5", "%"].map(|text| per_cent(text).ok()),
            [Some(0.5), Some(0.5), Some(0.5), None]
        );
        assert!(fraction_below_one("99.9%").is_ok() && fraction_below_one("100%").is_err());
        assert!(confidence("95%").is_ok() && confidence("5%").is_err());
    }
}
