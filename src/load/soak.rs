//! Changes during a long trial: growth of memory, and drift of the latency.

use super::served::Trial;
use crate::run_data::{LoadResult, LoadWindow};
use crate::statistics::{SortedCalls, autocorrelation_of, median};

/// The number of windows of a watched trial.
const WINDOWS: usize = 20;
/// The part of a trial at its beginning in which memory may grow: allocators and caches fill up.
const WARM_UP: f64 = 0.5;
/// The parts of a trial after which its memory is tested for growth, besides its end. More looks would find growth by
/// chance, and a look in the first half would find that of the warm-up.
pub const LOOKS: [f64; 2] = [2.0 / 3.0, 5.0 / 6.0];
/// The fewest samples of memory for an estimate of growth.
const FEWEST_SAMPLES: usize = 10;
/// The one-sided quantile of the normal distribution for 99 % confidence over three looks: each has a third of the 1 %
/// (Bonferroni).
const NORMAL_OF_A_LOOK: f64 = 2.713;
/// The significance level of a change of the latency.
const SIGNIFICANT: f64 = 0.01;

/// The state of the process at a moment of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    pub at_ns: u64,
    pub memory_mb: f64,
    /// How often the system has throttled the processors so far, if it reports that.
    pub throttled: Option<u64>,
}

/// How memory grows, in megabytes per hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    pub per_hour: f64,
    /// The lower bound of the growth with 99 % confidence over all looks.
    pub least_per_hour: f64,
}

/// The growth of memory in the second half of a trial of this length: the median of the slopes between all pairs of
/// samples (Theil 1950), and its lower bound (Sen 1968, "Estimates of the regression coefficient based on Kendall's
/// tau"). A single step is not growth. Samples that resemble their neighbours count as fewer, as in a first-order
/// autoregressive series (Hamed & Rao 1998, "A modified Mann-Kendall trend test for autocorrelated data"). Returns
/// `None` for fewer than ten samples.
pub fn growth(moments: &[Moment], length_ns: u64) -> Option<Growth> {
    let length_ns = moments.last().map_or(length_ns, |last| length_ns.max(last.at_ns));
    let begin = (WARM_UP * length_ns as f64) as u64;
    let samples: Vec<&Moment> = moments.iter().filter(|moment| moment.at_ns >= begin).collect();
    let n = samples.len();
    if n < FEWEST_SAMPLES {
        return None;
    }
    let slope = |one: &Moment, other: &Moment| {
        let hours = other.at_ns.saturating_sub(one.at_ns).max(1) as f64 / 3.6e12;
        (other.memory_mb - one.memory_mb) / hours
    };
    let pairs = |place: usize| samples[place + 1..].iter().map(move |other| (place, *other));
    let mut slopes: Vec<f64> = (0..n).flat_map(pairs).map(|(place, other)| slope(samples[place], other)).collect();
    slopes.sort_by(f64::total_cmp);
    let per_hour = median(&slopes)?;
    let residual = |moment: &&Moment| moment.memory_mb - per_hour * (moment.at_ns - begin) as f64 / 3.6e12;
    let r = likeness(&samples.iter().map(residual).collect::<Vec<_>>());
    let deviation = ((n * (n - 1) * (2 * n + 5)) as f64 / 18.0 * (1.0 + r) / (1.0 - r)).sqrt();
    let lower = (slopes.len() as f64 - NORMAL_OF_A_LOOK * deviation) / 2.0;
    Some(Growth { per_hour, least_per_hour: slopes[lower.max(0.0) as usize] })
}

/// The autocorrelation of neighbours plus one standard error, from 0 to 0.6. A higher one would not be noise: growth
/// that is not quite linear also makes neighbours alike.
fn likeness(values: &[f64]) -> f64 {
    let error = 1.0 / (values.len() as f64).sqrt();
    autocorrelation_of(values).map_or(0.0, |found| (found + error).clamp(0.0, 0.6))
}

/// The place of the first value after the largest change of a series' level. Returns `None` if the change is not
/// significant (Pettitt 1979, "A non-parametric approach to the change-point problem").
fn change_point(values: &[f64]) -> Option<usize> {
    let n = values.len();
    let sign = |before: f64, after: f64| f64::from(i8::from(after > before) - i8::from(after < before));
    let statistic = |place: usize| -> f64 {
        let (before, after) = values.split_at(place);
        before.iter().flat_map(|&before| after.iter().map(move |&after| sign(before, after))).sum()
    };
    let found = (1..n).map(|place| (place, statistic(place).abs())).max_by(|one, other| one.1.total_cmp(&other.1));
    let (place, statistic) = found?;
    let n = n as f64;
    let chance = 2.0 * (-6.0 * statistic * statistic / (n.powi(3) + n.powi(2))).exp();
    (chance <= SIGNIFICANT).then_some(place)
}

/// The windows of a watched trial.
pub fn windows(case_id: &str, trial: &Trial) -> Vec<LoadWindow> {
    let Some(last) = trial.served.iter().map(|request| request.ended_ns).max() else { return Vec::new() };
    let length = last / WINDOWS as u64 + 1;
    let mut latencies: Vec<Vec<u64>> = vec![Vec::new(); WINDOWS];
    for request in trial.served.iter().filter(|request| request.is_answered()) {
        latencies[(request.ended_ns / length) as usize].push(request.latency_ns());
    }
    let mut throttled_before = trial.moments.first().and_then(|moment| moment.throttled);
    let window = |(number, latencies): (usize, Vec<u64>)| {
        let (from, to) = (number as u64 * length, (number as u64 + 1) * length);
        let queries = latencies.len();
        let sorted = SortedCalls::new(latencies);
        let at = |p: f64| sorted.as_ref().map(|calls| calls.percentile(p) as f64 / 1e6);
        let moment = trial.moments.iter().rfind(|moment| moment.at_ns < to);
        let throttled = moment.and_then(|moment| moment.throttled);
        let events = throttled.zip(throttled_before).map(|(now, before)| now.saturating_sub(before));
        throttled_before = throttled.or(throttled_before);
        LoadWindow {
            case_id: case_id.to_owned(),
            from_s: from as f64 / 1e9,
            to_s: to as f64 / 1e9,
            queries,
            latency_p50_ms: at(0.5),
            latency_p99_ms: at(0.99),
            memory_mb: moment.map(|moment| moment.memory_mb),
            throttled: events,
        }
    };
    latencies.into_iter().enumerate().map(window).collect()
}

/// Adds the growth, drift and throttling of a watched trial to its row.
pub fn with_changes(result: LoadResult, trial: &Trial, windows: &[LoadWindow], length_ns: u64) -> LoadResult {
    let growth = growth(&trial.moments, length_ns);
    let drift = |of: fn(&LoadWindow) -> Option<f64>| {
        let known: Vec<(f64, f64)> = windows.iter().filter_map(|window| Some((window.from_s, of(window)?))).collect();
        let values: Vec<f64> = known.iter().map(|(_, ms)| *ms).collect();
        let place = change_point(&values)?;
        Some((known[place].0, median(&values[place..])? / median(&values[..place])?))
    };
    let (p50, p99) = (drift(|window| window.latency_p50_ms), drift(|window| window.latency_p99_ms));
    let throttled: Vec<u64> = windows.iter().filter_map(|window| window.throttled).collect();
    LoadResult {
        growth_mb_per_h: growth.map(|growth| growth.per_hour),
        least_growth_mb_per_h: growth.map(|growth| growth.least_per_hour),
        drift_p50: p50.map(|(_, ratio)| ratio),
        drift_p50_from_s: p50.map(|(from, _)| from),
        drift_p99: p99.map(|(_, ratio)| ratio),
        drift_p99_from_s: p99.map(|(from, _)| from),
        throttled: (!throttled.is_empty()).then(|| throttled.iter().sum()),
        ..result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Served;
    use crate::statistics::uniform;

    const HOUR_NS: u64 = 3_600_000_000_000;

    /// A sample per minute of an hour.
    fn moments(memory_mb: impl Fn(f64) -> f64) -> Vec<Moment> {
        let moment = |minute: u64| Moment {
            at_ns: minute * HOUR_NS / 60,
            memory_mb: memory_mb(minute as f64),
            throttled: Some(minute / 30),
        };
        (0..60).map(moment).collect()
    }

    #[test]
    fn memory_grows_if_it_does_so_all_the_time() {
        let of = |memory_mb: &dyn Fn(f64) -> f64| growth(&moments(memory_mb), HOUR_NS).unwrap();
        let leak = of(&|minute| 100.0 + minute + (minute * 7.0).sin());
        assert!((leak.per_hour - 60.0).abs() < 3.0 && (20.0..60.0).contains(&leak.least_per_hour), "{leak:?}");
        // Memory that is taken in the first half is not growth, and neither is a single step.
        let flat = of(&|minute| if minute < 28.0 { minute } else { 28.0 });
        assert_eq!((flat.per_hour, flat.least_per_hour), (0.0, 0.0));
        let step = of(&|minute| if minute < 40.0 { 100.0 } else { 130.0 });
        assert_eq!((step.per_hour, step.least_per_hour), (0.0, 0.0));
        assert_eq!(growth(&moments(|_| 1.0)[..35], HOUR_NS), None);
    }

    /// How many of these trials of an hour fail at one of the looks or at the end. The limit is 50 MB/h. Memory grows
    /// by `per_hour` MB/h and by `early` of the minute, with a noise of 1 MB whose autocorrelation is `alike`.
    fn failing(trials: u64, per_hour: f64, early: impl Fn(f64) -> f64, alike: f64) -> usize {
        let fails = |seed: u64| {
            let mut state = seed * 1_000_003;
            let mut noise = 0.0;
            let mut sample = |place: u64| {
                let normal =
                    (-2.0 * uniform(&mut state).ln()).sqrt() * (std::f64::consts::TAU * uniform(&mut state)).cos();
                noise = alike * noise + (1.0_f64 - alike * alike).sqrt() * normal;
                let minute = place as f64 / 2.0;
                let memory_mb = 100.0 + per_hour * minute / 60.0 + early(minute) + noise;
                Moment { at_ns: place * HOUR_NS / 120, memory_mb, throttled: None }
            };
            let all: Vec<Moment> = (0..=120).map(&mut sample).collect();
            LOOKS.into_iter().chain([1.0]).any(|part| {
                let until = (part * 120.0) as usize;
                growth(&all[..=until], HOUR_NS).is_some_and(|growth| growth.least_per_hour > 50.0)
            })
        };
        (0..trials).filter(|seed| fails(*seed)).count()
    }

    #[test]
    fn growth_at_the_limit_seldom_fails_and_growth_that_ends_never() {
        for alike in [0.0, 0.5] {
            let found = failing(400, 50.0, |_| 0.0, alike);
            // Of 400 trials that each fail with 2.5 %, more than twenty do so once in 500 times.
            assert!(found <= 20, "{found} of 400 with {alike}");
        }
        // An allocator that takes 12 MB in the first tenth of the trial.
        assert_eq!(failing(200, 0.0, |minute| 12.0 * (minute / 6.0).min(1.0), 0.0), 0);
        assert!(failing(100, 70.0, |_| 0.0, 0.0) >= 95);
    }

    #[test]
    #[ignore = "prints the table of the guide"]
    fn print_how_often_growth_fails() {
        println!("| memory | independent noise | noise like its neighbour (0.5) |");
        println!("| --- | ---: | ---: |");
        let none = |_: f64| 0.0;
        let quick = |minute: f64| 12.0 * (minute / 6.0).min(1.0);
        let slow = |minute: f64| 12.0 * (1.0 - (-minute / 6.0).exp());
        type Row<'a> = (&'a str, f64, &'a dyn Fn(f64) -> f64);
        let rows: [Row<'_>; 7] = [
            ("grows by 50 MB/h, the limit", 50.0, &none),
            ("grows by 55 MB/h", 55.0, &none),
            ("grows by 60 MB/h", 60.0, &none),
            ("grows by 75 MB/h", 75.0, &none),
            ("takes 12 MB in the first tenth", 0.0, &quick),
            ("takes 12 MB, with a time constant of a tenth", 0.0, &slow),
            ("both: 12 MB early, and 50 MB/h", 50.0, &slow),
        ];
        for (name, per_hour, early) in rows {
            let [free, alike] = [0.0, 0.5].map(|alike| failing(2000, per_hour, early, alike) as f64 / 20.0);
            println!("| {name} | {free:.1} % | {alike:.1} % |");
        }
    }

    #[test]
    fn a_change_is_found_where_it_is_and_not_in_noise() {
        let mut state = 5;
        let mut noise = || uniform(&mut state) - 0.5;
        let slower: Vec<f64> = (0..20).map(|place| if place < 12 { 5.0 } else { 7.0 } + noise()).collect();
        assert_eq!(change_point(&slower), Some(12));
        let found = (0..200).filter(|_| change_point(&(0..20).map(|_| noise()).collect::<Vec<_>>()).is_some()).count();
        assert!(found <= 6, "{found} of 200 series of noise have a change");
        assert_eq!((change_point(&[]), change_point(&[1.0; 30])), (None, None));
    }

    #[test]
    fn windows_tell_when_it_became_slower() {
        let request = |second: u64| Served {
            scheduled_ns: second * 1_000_000_000,
            ended_ns: second * 1_000_000_000 + if second < 600 { 5_000_000 } else { 10_000_000 + second },
            batch: 1,
            ..Served::default()
        };
        let moments = moments(|minute| 100.0 + minute);
        let trial = Trial { served: (0..1000).map(request).collect(), moments, ..Trial::default() };
        let windows = windows("m/ort-cpu-f32/1", &trial);
        assert_eq!((windows.len(), windows[0].queries, windows[0].latency_p50_ms), (20, 50, Some(5.0)));
        // After 16 minutes.
        assert_eq!((windows[19].memory_mb, windows[19].throttled), (Some(116.0), Some(0)));
        let result = with_changes(LoadResult::default(), &trial, &windows, HOUR_NS);
        assert!((result.drift_p50.unwrap() - 2.0).abs() < 0.01, "{result:?}");
        assert!((result.drift_p50_from_s.unwrap() - 600.0).abs() < 51.0, "{result:?}");
        assert!((result.growth_mb_per_h.unwrap() - 60.0).abs() < 1e-6, "{result:?}");
    }
}
