//! A case that a filter leaves out is not recommended, but still counts as the original.

use super::*;
use crate::definition::Dtype;

fn in_dtype(dtype: Dtype, record: Record) -> Record {
    let case = Case { dtype, ..record.case() };
    Record { case_id: case.to_string(), dtype, ..record }
}

/// The sentence of the recommendation among the cases of this dtype.
fn of_dtype(dtype: Dtype, narrow: Record) -> String {
    let filter = CaseFilter { dtype: vec![dtype], ..CaseFilter::default() };
    let options = Options { noise: QUIET, filter, ..Options::new("m") };
    advise(&[original(), in_dtype(dtype, narrow)], &[], &options).unwrap().remove(0).sentence
}

#[test]
fn a_dtype_that_loses_too_much_is_no_original_beside_a_filter() {
    let sentence = of_dtype(Dtype::Bf16, measured("original", "ort", 5.0, 1.0, (-5.0, -7.0, -3.0)));
    assert_eq!(sentence, "Nothing is recommended: no case of kept quality passes the filters.");
    let sentence = of_dtype(Dtype::Bf16, measured("original", "ort", 5.0, 1.0, SAME));
    assert!(sentence.starts_with("For latency, deploy the original on ort in bf16: p50 1.00 ms"), "{sentence}");
}

#[test]
fn a_variant_is_compared_with_an_original_that_a_filter_leaves_out() {
    let sentence = of_dtype(Dtype::I8, measured("int8-static", "ort", 3.0, 3.0, SAME));
    assert!(sentence.starts_with("For latency, deploy int8-static on ort in i8: p50 3.00 ms"), "{sentence}");
}

#[test]
fn each_dtype_has_its_best_beside_the_others() {
    let records = [
        original(),
        in_dtype(Dtype::I8, measured("int8-static", "ort", 3.0, 1.0, SAME)),
        in_dtype(Dtype::Bf16, measured("original", "ort", 5.0, 1.0, (-5.0, -7.0, -3.0))),
    ];
    let found = side_by_side(&records, &[], &Options { noise: QUIET, ..Options::new("m") }, Per::Dtype);
    assert_eq!(found.iter().map(|it| it.best_of.as_str()).collect::<Vec<_>>(), ["i8", "f32"]);
}

#[test]
fn a_filter_that_leaves_nothing_of_the_model_is_said() {
    let filter = CaseFilter { dtype: vec![Dtype::F16], ..CaseFilter::default() };
    let failure = advise(&[original()], &[], &Options { filter, ..Options::new("m") }).unwrap_err();
    assert_eq!(failure.to_string(), "no case of m passes the filters");
}
