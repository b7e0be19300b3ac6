//! Where two cases differ: the same network on two backends, in two variants, or before and after a change.
//!
//! Runtimes name and fuse operators in their own ways, so times are compared by the module of the model and the
//! [`Kind`] of the operator.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::run_data::{CaseProfile, OUTSIDE, ProfileRow};

/// The difference of two cases, A and B.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub a: DifferenceSide,
    pub b: DifferenceSide,
    /// By the absolute difference, the largest first.
    pub rows: Vec<DifferenceRow>,
}

/// One of the two cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DifferenceSide {
    pub run_id: String,
    pub case_id: String,
    /// The median of the plain calls.
    pub plain_us: f64,
}

/// What the operators of one kind in one module take in both cases, without the profiler's cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DifferenceRow {
    /// Absent if the operators belong to no known module.
    pub module: Option<String>,
    pub kind: Kind,
    /// The operators of A, in its runtime's words, separated by commas.
    pub a_operators: String,
    pub b_operators: String,
    /// Absent if A has no such operator.
    pub a_us: Option<f64>,
    pub b_us: Option<f64>,
    /// B minus A: positive if B is slower.
    pub difference_us: f64,
}

/// The operators of one side in a row.
#[derive(Default)]
struct Operators<'a> {
    names: Vec<&'a str>,
    us: Option<f64>,
}

/// How B differs from A.
pub fn difference(a: &CaseProfile, b: &CaseProfile) -> Difference {
    let mut found: IndexMap<(Option<&str>, Kind), [Operators<'_>; 2]> = IndexMap::new();
    // The time outside operators is compared only if it is known in both cases.
    let is_hidden = |row: &ProfileRow| row.operator == OUTSIDE && row.share.is_none();
    let has_hidden = a.rows.iter().chain(&b.rows).any(is_hidden);
    for (side, case) in [a, b].into_iter().enumerate() {
        for row in case.rows.iter().filter(|row| !(has_hidden && row.operator == OUTSIDE)) {
            let sides = found.entry((row.module.as_deref(), Kind::of(&row.operator))).or_default();
            let Operators { names, us } = &mut sides[side];
            *us = Some(us.unwrap_or_default() + row.corrected_us);
            if !names.contains(&row.operator.as_str()) {
                names.push(&row.operator);
            }
        }
    }
    let row = |((module, kind), [a, b]): ((Option<&str>, Kind), [Operators<'_>; 2])| DifferenceRow {
        module: module.map(str::to_owned),
        kind,
        a_operators: a.names.join(", "),
        b_operators: b.names.join(", "),
        a_us: a.us,
        b_us: b.us,
        difference_us: b.us.unwrap_or_default() - a.us.unwrap_or_default(),
    };
    let mut rows: Vec<DifferenceRow> = found.into_iter().map(row).collect();
    rows.sort_by(|one, other| other.difference_us.abs().total_cmp(&one.difference_us.abs()));
    Difference { a: side(a), b: side(b), rows }
}

fn side(case: &CaseProfile) -> DifferenceSide {
    let run_id = case.rows.first().map(|row| row.run_id.clone()).unwrap_or_default();
    DifferenceSide { run_id, case_id: case.case_id.clone(), plain_us: case.plain_us }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str, rows: &[(Option<&str>, &str, f64)]) -> CaseProfile {
        let row = |(module, operator, us): &(Option<&str>, &str, f64)| ProfileRow {
            run_id: format!("run of {id}"),
            module: module.map(str::to_owned),
            operator: (*operator).to_owned(),
            corrected_us: *us,
            share: Some(us / 100.0),
            ..ProfileRow::default()
        };
        CaseProfile {
            case_id: id.into(),
            plain_us: 100.0,
            rows: rows.iter().map(row).collect(),
            ..CaseProfile::default()
        }
    }

    #[test]
    fn operators_of_two_runtimes_meet_in_their_module() {
        let a = case(
            "m/ort-cpu-f32/1",
            &[(Some("fc"), "Gemm", 30.0), (Some("norm"), "LayerNormalization", 5.0), (None, OUTSIDE, 4.0)],
        );
        let b = case(
            "m/tch-cpu-f32/1",
            &[
                (Some("fc"), "aten::linear", 1.0),
                (Some("fc"), "aten::addmm", 49.0),
                (Some("fc"), "aten::relu", 2.0),
                (Some("norm"), "aten::native_layer_norm", 4.0),
                (None, "aten::add", 3.0),
                (None, OUTSIDE, 5.0),
            ],
        );
        let found = difference(&a, &b);
        assert_eq!((found.a.case_id.as_str(), found.b.run_id.as_str()), ("m/ort-cpu-f32/1", "run of m/tch-cpu-f32/1"));
        let rows: Vec<_> = found.rows.iter().map(|row| (row.module.as_deref(), row.kind, row.difference_us)).collect();
        let expected = [
            (Some("fc"), Kind::Matmul, 20.0),
            (None, Kind::Elementwise, 3.0),
            (Some("fc"), Kind::Activation, 2.0),
            (Some("norm"), Kind::Normalisation, -1.0),
            (None, Kind::Outside, 1.0),
        ];
        assert_eq!(rows, expected);
        let first = &found.rows[0];
        assert_eq!((first.a_operators.as_str(), first.b_operators.as_str()), ("Gemm", "aten::linear, aten::addmm"));
        assert_eq!((found.rows[1].a_us, found.rows[1].b_us), (None, Some(3.0)));
    }

    #[test]
    fn a_case_does_not_differ_from_itself() {
        let a = case("m/ort-cpu-f32/1", &[(Some("fc"), "Gemm", 30.0), (None, OUTSIDE, 4.0)]);
        assert!(difference(&a, &a).rows.iter().all(|row| row.difference_us == 0.0 && row.a_us == row.b_us));
    }
}
