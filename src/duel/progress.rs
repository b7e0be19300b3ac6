//! A line a round: how far the duel is, and what the interval is now, which is no verdict yet.

use super::outcome::Duel;
use crate::compare::RatioInterval;

/// `round 7/40, about 1.6 min left; digits/ort-cpu-f32/1: +0.3 % [-0.8, +1.2], no verdict yet`
pub fn line(duel: &Duel, seconds_left: f64) -> String {
    let judged = duel.cases.iter().filter_map(|case| Some((&case.id, case.judgement.as_ref()?)));
    let others = judged.clone().count().saturating_sub(1);
    // Where it is going to be decided.
    let clearest = judged.min_by(|(_, one), (_, other)| one.p_value.total_cmp(&other.p_value));
    let shown = match clearest {
        Some((id, judgement)) => {
            let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
            match &judgement.change {
                Some(change) => format!("; {id}: {}, no verdict yet{more}", change_with_interval(change)),
                None => format!("; {id}: too few rounds for an interval{more}"),
            }
        }
        None => String::new(),
    };
    format!("round {}/{}, about {} left{shown}", duel.rounds, duel.planned_rounds, time(seconds_left))
}

/// `+0.3 % [-0.8, +1.2]`
pub fn change_with_interval(change: &RatioInterval) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} % [{:+.1}, {:+.1}]", percent(change.ratio), percent(change.lower), percent(change.upper))
}

fn time(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_in_per_cent_with_its_sign() {
        let change = RatioInterval { ratio: 1.003, lower: 0.992, upper: 1.012, confidence: 0.99 };
        assert_eq!(change_with_interval(&change), "+0.3 % [-0.8, +1.2]");
        assert_eq!((time(40.0), time(96.0)), ("40 s".to_owned(), "1.6 min".to_owned()));
    }
}
