//! Values that several commands read in the same way.

use anyhow::{Context, Result, ensure};

/// Reads a fraction from 0 on: `5%` or `0.05`. A number from 1 on needs its `%`, since it may be meant in per cent.
pub fn fraction(text: &str) -> Result<f64> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number: f64 = digits.parse().ok().context("not a number; write 5% or 0.05")?;
    let is_clear = unit > 1.0 || number < 1.0;
    ensure!(number.is_finite() && number >= 0.0 && is_clear, "not from 0 on, or without its %; write 5% or 0.05");
    Ok(number / unit)
}

/// Reads a fraction from 0 to below 1.
pub fn fraction_below_one(text: &str) -> Result<f64> {
    let fraction = fraction(text)?;
    ensure!(fraction < 1.0, "not from 0 to below 100 %");
    Ok(fraction)
}

/// Reads a time as milliseconds: `20ms`, `1.5s`, `300us`.
pub fn milliseconds(text: &str) -> Result<f64> {
    with_unit(text, &[("ms", 1.0), ("us", 1e-3), ("µs", 1e-3), ("s", 1e3)]).context("not a time; write 20ms or 1s")
}

/// Reads a size as megabytes: `1GB`, `200MB`.
pub fn megabytes(text: &str) -> Result<f64> {
    with_unit(text, &[("GB", 1e3), ("MB", 1.0), ("kB", 1e-3)]).context("not a size; write 1GB or 200MB")
}

/// Reads a rate: `100/s`, `100`.
pub fn per_second(text: &str) -> Result<f64> {
    with_unit(text, &[("/s", 1.0), ("", 1.0)]).context("not a rate; write 100/s")
}

/// A number above 0 in the first unit that the text ends with, in that unit's size.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64> {
    let (digits, size) =
        units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size))).context("no unit")?;
    let number: f64 = digits.trim_end().parse()?;
    ensure!(number.is_finite() && number > 0.0, "not above 0");
    Ok(number * size)
}

/// Reads minutes above 0 and up to a day.
pub fn minutes(text: &str) -> Result<f64> {
    let minutes: f64 = text.parse().ok().context("not a number")?;
    ensure!(minutes > 0.0 && minutes <= 24.0 * 60.0, "not above 0 and up to a day");
    Ok(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_rates_have_units() {
        let read = |texts: [&str; 3], parse: fn(&str) -> Result<f64>| texts.map(|text| parse(text).ok());
        assert_eq!(read(["20ms", "1.5 s", "300us"], milliseconds), [Some(20.0), Some(1500.0), Some(0.3)]);
        assert_eq!(read(["1GB", "200 MB", "3"], megabytes), [Some(1000.0), Some(200.0), None]);
        assert_eq!(read(["100/s", "12.5", "-1/s"], per_second), [Some(100.0), Some(12.5), None]);
        assert_eq!(read(["20", "0ms", "xs"], milliseconds), [None; 3]);
    }

    #[test]
    fn fractions_are_given_in_per_cent_or_as_such() {
        for (text, expected) in [("5%", 0.05), ("0.05", 0.05), ("12.5 %", 0.125), ("0", 0.0), ("3000%", 30.0)] {
            assert_eq!(fraction(text).unwrap(), expected, "{text}");
        }
        for bad in ["5", "x", "-1%", "nan", "inf%", ""] {
            assert!(fraction(bad).is_err(), "{bad:?}");
        }
        assert!(fraction_below_one("99.9%").is_ok() && fraction_below_one("100%").is_err());
    }
}
