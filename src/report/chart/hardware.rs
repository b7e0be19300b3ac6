//! The same model on several machines and devices.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use super::{Chart, Dot, Plot, positive};
use crate::report::selection::{Measured, Shown};

/// The latency of cases that were measured in several places.
pub fn chart(shown: &Shown<'_>) -> Chart {
    // A case that was measured in one place only has nothing to be compared with.
    let mut places: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for (_, case) in shown.measured() {
        places.entry((&case.group, row(case))).or_default().insert(place(shown, case));
    }
    let (mut panels, mut rows) = (IndexSet::new(), IndexSet::new());
    let mut points = Vec::new();
    for (index, case) in shown.measured().filter(|(_, case)| places[&(case.group.as_str(), row(case))].len() > 1) {
        let Some(value) = positive(case.record.latency_p50_ms) else { continue };
        let (panel, row) = (panels.insert_full(case.group.clone()).0, rows.insert_full(row(case)).0);
        points.push(Dot { case: index, panel, row, series: place(shown, case), value });
    }
    Chart {
        id: "hardware",
        title: "Hardware: the same case on several machines and devices",
        caption: "Median time of a call. Lower is better.".into(),
        x: "latency, p50 (ms)",
        y: "case",
        is_log: true,
        absent: points.is_empty().then(|| only_one(shown)),
        plot: Plot::Dots {
            panels: panels.into_iter().collect(),
            rows: rows.into_iter().collect(),
            reference: None,
            points,
        },
    }
}

fn row(case: &Measured<'_>) -> String {
    format!("{} · {} · batch {}", case.case.backend, case.case.dtype, case.case.batch_size)
}

fn place(shown: &Shown<'_>, case: &Measured<'_>) -> String {
    let machine = &shown.machines[case.machine].name;
    if shown.machines.len() > 1 { format!("{machine} · {}", case.case.device) } else { case.case.device.clone() }
}

fn only_one(shown: &Shown<'_>) -> String {
    let machine = shown.machines.first().map_or("no machine", |machine| &machine.name);
    format!(
        "No case was measured in two places, only on {machine}; copy another machine's folder of target-reports/ here \
         and give both runs: `inferbench report RUN1 RUN2 --format html`."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};
    use crate::run_data::Record;

    #[test]
    fn only_what_two_machines_have_is_compared() {
        let elsewhere = |batch| Record { host_id: "gpu".into(), ..record("m", "ort", batch, Some(0.5)) };
        let here = run_of(1, vec![record("m", "ort", 1, Some(1.0)), record("m", "ort", 8, Some(4.0))]);
        let one = [here.clone()];
        assert!(chart(&Shown::new(&one, &[])).absent.unwrap().contains("report RUN1 RUN2"));
        let both = [here, run_of(2, vec![elsewhere(1)])];
        let chart = chart(&Shown::new(&both, &[]));
        let Plot::Dots { panels, rows, points, .. } = chart.plot else { panic!("{:?}", chart.plot) };
        assert_eq!((panels, rows), (vec!["m".to_owned()], vec!["ort · f32 · batch 1".to_owned()]));
        let series: Vec<&str> = points.iter().map(|dot| dot.series.as_str()).collect();
        assert_eq!(series, ["h · cpu", "gpu · cpu"]);
    }
}
