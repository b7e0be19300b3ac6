//! What a profile says of an operator, beside what the call takes without it and with it twice: a check that does not rest on the
//! profiler. The graphs are made here, with the few messages of ONNX that they need.

use inferbench::run_data::{CaseProfile, OUTSIDE, Profile};

use crate::support::{Run, Workplace, has_onnxruntime};

const ROWS: u64 = 16;
const WIDTH: u64 = 256;
/// A machine that is never quiet gets so many tries.
const MOST_ROUNDS: usize = 16;
/// A node costs the runtime something, too, and times scatter: this part of an operator's time.
const SLACK: f64 = 0.15;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 & 127 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

fn text(field: u64, content: &str) -> Vec<u8> {
    bytes(field, content.as_bytes())
}

/// A `NodeProto`.
fn node(operator: &str, inputs: &[&str], output: &str, name: &str) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|input| text(1, input)).collect();
    [inputs, text(2, output), text(3, name), text(4, operator)].concat()
}

/// A `TensorProto` of f32 values whose square has a mean of `1 / WIDTH`.
fn weights(name: &str) -> Vec<u8> {
    let value = |place: u64| ((place * 7919 % 1013) as f32 / 1013.0 - 0.5) * 3.46 / (WIDTH as f32).sqrt();
    let data: Vec<u8> = (0..WIDTH * WIDTH).flat_map(|place| value(place).to_le_bytes()).collect();
    [number(1, WIDTH), number(1, WIDTH), number(2, 1), text(8, name), bytes(9, &data)].concat()
}

/// A `ValueInfoProto` of f32 values.
fn value_info(name: &str) -> Vec<u8> {
    let shape: Vec<u8> = [ROWS, WIDTH].into_iter().flat_map(|size| bytes(1, &number(1, size))).collect();
    [text(1, name), bytes(2, &bytes(1, &[number(1, 1), bytes(2, &shape)].concat()))].concat()
}

/// A `ModelProto` with one node after the other: `MatMul` for each `m`, `Sigmoid` for each `s`.
fn chain(operators: &str) -> Vec<u8> {
    let name = |place: usize| if place == operators.len() { "y".to_owned() } else { format!("t{place}") };
    let (mut nodes, mut initializers) = (Vec::new(), Vec::new());
    for (place, operator) in operators.chars().enumerate() {
        let (input, output) = (if place == 0 { "x".to_owned() } else { name(place) }, name(place + 1));
        let own = format!("{operator}{place}");
        nodes.extend(bytes(
            1,
            &match operator {
                'm' => node("MatMul", &[&input, &format!("w{place}")], &output, &own),
                _ => node("Sigmoid", &[&input], &output, &own),
            },
        ));
        if operator == 'm' {
            initializers.extend(bytes(5, &weights(&format!("w{place}"))));
        }
    }
    let graph = [nodes, text(2, "g"), initializers, bytes(11, &value_info("x")), bytes(12, &value_info("y"))].concat();
    [number(1, 8), bytes(7, &graph), bytes(8, &number(2, 17))].concat()
}

fn profile(workplace: &Workplace, name: &str) -> CaseProfile {
    let mut command = workplace.inferbench(&["profile", name, "--backend", "ort", "--format", "json"]);
    let run = command.env("INFERBENCH_THREADS", "1").finish().with_code(0);
    let profile: Profile = serde_json::from_str(&run.stdout).unwrap();
    profile.cases.into_iter().next().unwrap_or_else(|| panic!("{name}: {:?}", profile.failures))
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn a_product_that_is_removed_or_doubled_saves_or_costs_what_the_profile_says() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort"], &[1]);
    for (name, operators) in [("without", "msmss"), ("with", "msmsms"), ("twice", "msmsmms")] {
        workplace.write(&format!("{name}.onnx"), chain(operators));
    }
    let mut seen = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let [without, with, twice] = ["without.onnx", "with.onnx", "twice.onnx"].map(|name| profile(&workplace, name));
        let products: Vec<_> = with.rows.iter().filter(|row| row.operator == "MatMul").collect();
        assert_eq!(products.len(), 3, "{:?}", with.rows);
        // The three products do the same work; the first one may find its input in another cache.
        let mean = |of: fn(&inferbench::run_data::ProfileRow) -> Option<f64>| {
            products.iter().map(|row| of(row).unwrap()).sum::<f64>() / 3.0
        };
        let (lower, upper) = (mean(|row| row.corrected_lower_us), mean(|row| row.corrected_upper_us));
        let outside = with.rows.iter().find(|row| row.operator == OUTSIDE).unwrap();
        assert!(lower <= upper && outside.corrected_lower_us <= outside.corrected_upper_us, "{:?}", with.rows);
        let (saved, added) = (with.plain_us - without.plain_us, twice.plain_us - with.plain_us);
        let is_within = |us: f64| ((1.0 - SLACK) * lower..=(1.0 + SLACK) * upper).contains(&us);
        seen.push(format!("{lower:.1} to {upper:.1} µs, removed {saved:.1}, doubled {added:.1}"));
        if is_within(saved) && is_within(added) {
            return;
        }
    }
    panic!("{seen:#?}");
}
