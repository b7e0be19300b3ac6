//! Values that several commands read in the same way.

/// `5%` or `0.05`: a part from 0 up. A bare number from 1 on is refused: it may be meant in per cent.
pub fn part(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number = digits.parse::<f64>().map_err(|_| "not a number; write 5% or 0.05".to_owned())?;
    let is_clear = unit > 1.0 || number < 1.0;
    if number.is_finite() && number >= 0.0 && is_clear {
        Ok(number / unit)
    } else {
        Err("not from 0 on, or without its %; write 5% or 0.05".into())
    }
}

/// The same below the whole.
pub fn part_of_whole(text: &str) -> Result<f64, String> {
    part(text).and_then(|part| if part < 1.0 { Ok(part) } else { Err("not from 0 to below 100 %".into()) })
}

/// Minutes above 0 and up to a day.
pub fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if minutes > 0.0 && minutes <= 24.0 * 60.0 { Ok(minutes) } else { Err("not above 0 and up to a day".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_given_in_per_cent_or_as_such() {
        assert_eq!([part("5%"), part("0.05"), part("12.5 %"), part("0")], [Ok(0.05), Ok(0.05), Ok(0.125), Ok(0.0)]);
        assert_eq!(part("3000%"), Ok(30.0));
        for bad in ["5", "x", "-1%", "nan", "inf%", ""] {
            assert!(part(bad).is_err(), "{bad:?}");
        }
        assert!(part_of_whole("99.9%").is_ok() && part_of_whole("100%").is_err());
    }
}
