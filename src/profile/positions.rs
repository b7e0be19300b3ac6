//! The calls of a language model by how many tokens its cache holds: attention reads all of them, products with weights
//! do not.

use super::kind::Kind;
use crate::run_data::{PositionRow, ProfileRow, ProfiledCalls};

/// Ends of the names of modules of attention. Their projections are modules within them, and count as products.
const ATTENTION: [&str; 2] = ["attn", "attention"];

/// One row per position; the first has `cached` tokens before it. `operators` are the rows of the call's operators in
/// the same order, and `cost_us` is the profiler's cost of each execution. Empty if calls do not follow one another, or
/// if the runtime adds them up.
pub fn by_position(calls: &ProfiledCalls, operators: &[ProfileRow], cached: usize, cost_us: f64) -> Vec<PositionRow> {
    let position = |(position, plain_ns): (usize, &f64)| {
        let mut row =
            PositionRow { cached_tokens: cached + position, plain_us: plain_ns / 1e3, ..PositionRow::default() };
        for (times, operator) in calls.operators.iter().zip(operators) {
            let us = (times.by_position_ns.get(position)? / 1e3 - cost_us * times.executions).max(0.0);
            match Kind::of(&operator.operator) {
                kind if kind == Kind::Attention || is_in_attention(operator) => row.attention_us += us,
                Kind::Matmul | Kind::Convolution => row.matmul_us += us,
                _ => {}
            }
        }
        row.rest_us = (row.plain_us - row.attention_us - row.matmul_us).max(0.0);
        Some(row)
    };
    calls.plain_by_position_ns.iter().enumerate().map_while(position).collect()
}

/// Whether the operator belongs to an attention module. Only the innermost module around it counts.
fn is_in_attention(row: &ProfileRow) -> bool {
    let innermost =
        row.module.as_deref().and_then(|module| module.rsplit('.').next()).unwrap_or_default().to_lowercase();
    // GPT-2's `c_attn` is a projection. llama.cpp calls the products of attention `kq` and `kqv`.
    innermost != "c_attn" && ATTENTION.iter().any(|name| innermost.ends_with(name)) || row.node.starts_with("kq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_data::OperatorTimes;

    #[test]
    fn attention_is_told_from_its_projections() {
        let operators = [
            ("model.layers.0.self_attn.q_proj", "MatMul", [10_000.0, 10_000.0]),
            ("model.layers.0.self_attn", "MatMul", [2_000.0, 4_000.0]),
            ("model.layers.0.self_attn", "Softmax", [1_000.0, 3_000.0]),
            ("model.layers.0.mlp", "Mul", [5_000.0, 5_000.0]),
        ];
        let times = operators.map(|(_, _, by_position_ns)| OperatorTimes {
            executions: 1.0,
            by_position_ns: by_position_ns.into(),
            ..OperatorTimes::default()
        });
        let rows = operators.map(|(module, operator, _)| ProfileRow {
            module: Some(module.into()),
            operator: operator.into(),
            ..ProfileRow::default()
        });
        let plain_by_position_ns = vec![20_000.0, 25_000.0];
        let calls = ProfiledCalls { operators: times.into(), plain_by_position_ns, ..ProfiledCalls::default() };
        let found = by_position(&calls, &rows, 32, 0.5);
        let of = |row: &PositionRow| (row.cached_tokens, row.attention_us, row.matmul_us, row.rest_us);
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), [(32, 2.0, 9.5, 8.5), (33, 6.0, 9.5, 9.5)]);
        assert_eq!(by_position(&ProfiledCalls::default(), &rows, 32, 0.5), []);
    }
}
