//! The words of a recommendation: what is better and what is worse than the original, and why others are not chosen.

use super::choice::{Rules, cost, was_as_fast};
use super::wording::{count_of_points, listed, name, percent, points, short_percent, times};
use super::{Goal, Measure, Quality, Row, Terms};
use crate::record::Record;

/// What the sentences are made of.
pub struct Writer<'a> {
    pub rows: &'a [Row],
    pub baseline: &'a Row,
    pub rules: Rules,
    pub terms: &'a Terms<'a>,
}

impl Writer<'_> {
    /// What to ship, and why.
    pub fn sentence(&self, chosen: &Row) -> String {
        let base = name(self.baseline, self.rows);
        let by_agreement = match self.rules.measure {
            Measure::Agreement => {
                "; quality here is agreement with the original, not accuracy: there were no labelled samples"
            }
            Measure::Accuracy | Measure::Unknown => "",
        };
        if chosen.is_baseline {
            let least = short_percent(self.rules.least_gain_of(self.terms.options.goal));
            let ahead = match self.terms.options.goal {
                Goal::Latency => format!("is shown to be more than {least} faster, or as fast and smaller"),
                Goal::Throughput => {
                    format!("is shown to have over {least} more throughput, or to have as much and be smaller")
                }
                Goal::Size => format!("is more than {least} smaller"),
                Goal::Memory => format!("needs over {least} less memory, or as much and is smaller"),
            };
            return format!("Keep {base}: nothing of acceptable quality {ahead}{by_agreement}.");
        }
        let Against { gains, losses } = self.against_baseline(chosen);
        let but = if losses.is_empty() { String::new() } else { format!(", but {}", listed(&losses)) };
        format!(
            "Ship {}: {} than {base}{but}{}{by_agreement}.",
            name(chosen, self.rows),
            listed(&gains),
            self.quality(chosen)
        )
    }

    /// `, accuracy 98.2 % against 98.0 % of 450 samples (change +0.2 points, 95 % interval −0.6 to +1.0)`.
    fn quality(&self, row: &Row) -> String {
        let record = &row.record;
        match self.rules.measure {
            Measure::Accuracy => {
                let Some(accuracy) = record.accuracy else { return String::new() };
                let against = self.against_accuracy(accuracy, record).unwrap_or_default();
                let samples = record.accuracy_samples.map(|samples| format!(" of {samples} samples"));
                let change = change(row).map(|change| format!(" ({change})"));
                let parts = [samples, change].map(Option::unwrap_or_default).concat();
                format!(", accuracy {}{against}{parts}", percent(accuracy))
            }
            Measure::Agreement => match agreement(row) {
                Some(agreement) => format!(", {agreement}"),
                None => String::new(),
            },
            Measure::Unknown => String::new(),
        }
    }

    /// ` against 98.0 %`, of the original that the change is to, which is named where it is not the baseline. Without a
    /// change, of the baseline, if it was judged by as many samples.
    fn against_accuracy(&self, accuracy: f64, record: &Record) -> Option<String> {
        let Some(change) = record.accuracy_change else {
            let is_of_as_many = self.baseline.record.accuracy_samples == record.accuracy_samples;
            let base = self.baseline.record.accuracy.filter(|_| is_of_as_many)?;
            return Some(format!(" against {}", percent(base)));
        };
        let by = record.compared_with.as_deref().and_then(|id| {
            let is_it = |row: &&Row| without_batch_size(&row.record.case_id) == without_batch_size(id);
            match self.rows.iter().find(is_it) {
                Some(row) if row.is_baseline => None,
                Some(row) => Some(name(row, self.rows)),
                None => Some(id.to_owned()),
            }
        });
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        Some(format!(" against {}{by}", percent(accuracy - change)))
    }

    /// The fastest acceptable row that is better than the baseline, not equal, and not shown to be, unless a better one is
    /// chosen.
    pub fn unshown_gain(&self, chosen: &Row) -> Option<&Row> {
        let goal = self.terms.options.goal;
        let is_unshown = |row: &&Row| {
            row.is_candidate()
                && row.quality.is_acceptable()
                && cost(goal, row).is_some()
                && !self.rules.is_no_worse(goal, self.baseline, row)
                && !self.rules.is_ahead(goal, row, self.baseline)
        };
        let figure = |row: &Row| cost(goal, row).unwrap_or(f64::INFINITY);
        let unshown = self.rows.iter().filter(is_unshown);
        let fastest = unshown.min_by(|one, other| figure(one).total_cmp(&figure(other)));
        fastest.filter(|row| figure(row) <= figure(chosen))
    }

    /// Why the gain of such a row is not shown.
    pub fn unshown(&self, row: &Row) -> String {
        let goal = self.terms.options.goal;
        let gain = cost(goal, self.baseline).zip(cost(goal, row));
        let gain = gain.map(|(base, own)| times(base / own)).unwrap_or_default();
        let better = if goal == Goal::Throughput { "higher in throughput" } else { "faster" };
        let why = if was_as_fast(self.baseline, row) {
            format!("{} was as fast at times", name(self.baseline, self.rows))
        } else {
            format!("the best of {} rows of equal code may seem to be by chance", self.terms.candidates)
        };
        format!("{} was {gain} {better}, but that is not shown: {why}.", name(row, self.rows))
    }

    /// What a row that would be better lacks.
    pub fn why_not(&self, row: &Row) -> String {
        match row.quality {
            Quality::Open => self.open(row),
            Quality::Lost => self.lost(row),
            _ => self.unknown(row),
        }
    }

    fn open(&self, row: &Row) -> String {
        let samples = row.record.accuracy_samples.map_or("the".to_owned(), |samples| samples.to_string());
        let change = change(row).map(|change| format!(" ({change})")).unwrap_or_default();
        let loss = count_of_points(self.terms.options.loss());
        self.would_be(row, &format!("{samples} samples do not show that it loses less than {loss}{change}"))
    }

    fn lost(&self, row: &Row) -> String {
        let (loss, figures) = match self.rules.measure {
            Measure::Accuracy => ("it loses accuracy", change(row)),
            Measure::Agreement | Measure::Unknown => ("it answers differently", agreement(row)),
        };
        let figures = figures.map(|figures| format!(" ({figures})")).unwrap_or_default();
        self.would_be(row, &format!("{loss}{figures}"))
    }

    fn unknown(&self, row: &Row) -> String {
        let is_accuracy = self.rules.measure == Measure::Accuracy;
        let source = self.rows.iter().find_map(|row| row.record.data_source.as_deref());
        let why = match (is_accuracy, source) {
            (true, _) if row.record.accuracy.is_some() => {
                "no original was judged by the same samples in its run".to_owned()
            }
            (true, Some(source)) => format!("its accuracy on {source} was not measured"),
            (true, None) => "its accuracy was not measured".to_owned(),
            (false, _) => "its agreement with the original was not measured".to_owned(),
        };
        self.would_be(row, &why)
    }

    /// `int8 on ort would be 4.2 × smaller, though 1.1 × slower, but …`.
    fn would_be(&self, row: &Row, but: &str) -> String {
        let Against { gains, losses } = self.against_baseline(row);
        let though = if losses.is_empty() { String::new() } else { format!(", though {}", listed(&losses)) };
        format!("{} would be {}{though}, but {but}.", name(row, self.rows), listed(&gains))
    }

    /// In what a row is shown to be better than the baseline, and in what it is worse; the goal first.
    fn against_baseline(&self, row: &Row) -> Against {
        let mut quantities = vec![
            (Goal::Latency, "faster", "slower"),
            (Goal::Size, "smaller", "larger"),
            (Goal::Memory, "lower in memory", "higher in memory"),
        ];
        if self.terms.options.goal == Goal::Throughput {
            quantities.push((Goal::Throughput, "higher in throughput", "lower in throughput"));
        }
        // Memory is told of where it is asked for, or where it speaks against the row.
        quantities.sort_by_key(|(goal, ..)| *goal != self.terms.options.goal);
        let mut against = Against { gains: Vec::new(), losses: Vec::new() };
        for (goal, better, worse) in quantities {
            let Some((own, base)) = cost(goal, row).zip(cost(goal, self.baseline)) else { continue };
            if self.rules.is_ahead(goal, row, self.baseline) {
                if goal != Goal::Memory || self.terms.options.goal == Goal::Memory {
                    against.gains.push(format!("{} {better}", times(base / own)));
                }
            } else if !self.rules.is_no_worse(goal, row, self.baseline) {
                against.losses.push(format!("{} {worse}", times(own / base)));
            } else if goal.is_time() && own > base * (1.0 + HAIR) {
                // It is taken as level, and the reader may decide otherwise.
                let loss = times(own / base);
                against.losses.push(format!("{loss} {worse} (within what equal code differs by here)"));
            }
        }
        against
    }
}

/// By so much a row may be slower without a word.
const HAIR: f64 = 0.02;

/// A row beside the baseline.
struct Against {
    gains: Vec<String>,
    losses: Vec<String>,
}

/// `m/ort-cpu-f32` of `m/ort-cpu-f32/8`.
fn without_batch_size(case_id: &str) -> &str {
    case_id.rsplit_once('/').map_or(case_id, |(start, _)| start)
}

/// `change −0.2 points, 95 % interval −1.4 to +1.0`.
fn change(row: &Row) -> Option<String> {
    let record = &row.record;
    let change = format!("change {} points", points(record.accuracy_change?));
    let interval = record.accuracy_change_lower.zip(record.accuracy_change_upper);
    Some(match interval {
        Some((lower, upper)) => format!("{change}, 95 % interval {} to {}", points(lower), points(upper)),
        None => change,
    })
}

/// `agreement 98.4 % of 64 samples, cosine 0.9998`.
fn agreement(row: &Row) -> Option<String> {
    let record = &row.record;
    let samples = record.agreement_samples.map(|samples| format!(" of {samples} samples")).unwrap_or_default();
    let agreement = record.agreement.map(|agreement| format!("agreement {}{samples}", percent(agreement)));
    let cosine = record.output_cosine.map(|cosine| format!("cosine {cosine:.4}"));
    let parts: Vec<String> = [agreement, cosine].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
