//! Weights in blocks of few bits.

use sha2::{Digest, Sha256};
use strum::IntoEnumIterator;

use super::super::blocks::{Share, dequantise};
use super::*;

/// A graph of one product with a matrix `[inner, channels]`, which the file may hold transposed.
fn product_of(matrix: &[f32], [inner, channels]: [i64; 2], is_transposed: bool) -> ModelProto {
    let (dims, numbers): (_, Vec<f32>) = if is_transposed {
        let row = |channel: i64| (0..inner).map(move |row| matrix[(row * channels + channel) as usize]);
        ([channels, inner], (0..channels).flat_map(row).collect())
    } else {
        ([inner, channels], matrix.to_vec())
    };
    let mut nodes = vec![NodeProto::new("MatMul", &["x", if is_transposed { "t" } else { "w" }], "y")];
    if is_transposed {
        nodes.insert(0, NodeProto::new("Transpose", &["w"], "t"));
    }
    model(nodes, vec![weight("w", &dims, &numbers)], &[("x", element::FLOAT)])
}

impl Place {
    fn in_blocks(&self, model: &ModelProto, blocks: Blocks, dtype: Dtype) -> Result<GraphProto> {
        std::fs::write(self.path("from.onnx"), model.encode_to_vec()).unwrap();
        convert(&self.path("from.onnx"), &Form::Blocks(blocks, dtype), &self.path("to.onnx"))?;
        Ok(Source::read(&self.path("to.onnx")).unwrap().graph)
    }

    /// The bytes of an input of the only product.
    fn input(&self, graph: &GraphProto, place: usize) -> Vec<u8> {
        let node = graph.nodes.iter().find(|node| node.op_type == "MatMulNBits").unwrap();
        let source = Source::read(&self.path("to.onnx")).unwrap();
        source.bytes(initializer(graph, &node.inputs[place])).unwrap().to_vec()
    }

    /// The matrix of the graph in blocks, in f32 again.
    fn dequantised(&self) -> Vec<f32> {
        dequantise(&self.path("to.onnx"), &self.path("exact.onnx")).unwrap();
        let source = Source::read(&self.path("exact.onnx")).unwrap();
        assert_eq!(operators(&source.graph), ["MatMul"]);
        source.floats(&source.graph.initializers[0]).unwrap()
    }
}

/// A matrix with a block of zeros, whose numbers are all multiples of 1/64.
fn known_matrix() -> Vec<f32> {
    (0..384 * 2).map(|at| if at < 64 { 0.0 } else { (at * 37 % 101 - 40) as f32 / 64.0 }).collect()
}

/// The first bytes of the hashes of what `matmul_nbits_quantizer` of ONNX Runtime 1.32 makes of this matrix: integers,
/// scales and zero points.
#[test]
fn blocks_are_those_of_onnx_runtimes_own_quantiser() {
    let place = Place::new();
    for (blocks, hashes) in [
        (Blocks::Int8, ["76e6edc4c592ae7d", "645457215c647564"].as_slice()),
        (Blocks::Int4, &["75205b3809d82a54", "597a6768960b5114"]),
        (Blocks::Int4Asym, &["3d3d7be762b7b687", "c48563dddb069f23", "c2462f7ce97e7813"]),
        (Blocks::Int4Long, &["8b7ace59192fa807", "cd666b0d55d7c584"]),
        (Blocks::Int4LongAsym, &["d425fc4baaf30a77", "db8fa3b5e29b26e4", "5dbe05bbca15c9aa"]),
    ] {
        for is_transposed in [false, true] {
            let model = product_of(&known_matrix(), [384, 2], is_transposed);
            let graph = place.in_blocks(&model, blocks, Dtype::I8).unwrap();
            assert_eq!(operators(&graph), ["MatMulNBits"], "{blocks}");
            let hash = |input: usize| {
                let digest = Sha256::digest(place.input(&graph, input));
                digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
            };
            let made: Vec<String> = (1..graph.nodes[0].inputs.len()).map(hash).collect();
            assert_eq!(made, hashes, "{blocks}");
        }
    }
}

#[test]
fn a_product_says_its_sizes_and_what_its_activations_are_computed_in() {
    let place = Place::new();
    for (dtype, level) in [(Dtype::I8, 4), (Dtype::F32, 1)] {
        let graph = place.in_blocks(&product_of(&known_matrix(), [384, 2], true), Blocks::Int4Long, dtype).unwrap();
        let node = &graph.nodes[0];
        let sizes = ["K", "N", "bits", "block_size", "accuracy_level"].map(|name| node.int(name).unwrap());
        assert_eq!((node.domain.as_str(), sizes), ("com.microsoft", [384, 2, 4, 128, level]));
        assert_eq!(initializer(&graph, &node.inputs[1]).dims, [2, 3, 64]);
    }
    let source = Source::read(&place.path("to.onnx")).unwrap();
    let imports = source.model.opset_imports.iter().map(|import| (import.domain.as_str(), import.version));
    assert_eq!(imports.collect::<Vec<_>>(), [("", 16), ("com.microsoft", 1)]);
}

#[test]
fn a_bias_is_added_and_a_weight_of_two_products_is_written_once() {
    let gemm = |input: &str, output: &str| NodeProto {
        attributes: vec![AttributeProto::int("transB", 1)],
        ..NodeProto::new("Gemm", &[input, "w", "b"], output)
    };
    let numbers: Vec<f32> = (0..32 * 32).map(|at| (at % 37) as f32).collect();
    let initializers = vec![weight("w", &[32, 32], &numbers), weight("b", &[32], &[1.0; 32])];
    let nodes = vec![gemm("x", "h"), gemm("h", "y")];
    let graph =
        Place::new().in_blocks(&model(nodes, initializers, &[("x", element::FLOAT)]), Blocks::Int4, Dtype::I8).unwrap();
    assert_eq!(operators(&graph), ["MatMulNBits", "Add", "MatMulNBits", "Add"]);
    assert_eq!(graph.nodes[0].inputs[1..], graph.nodes[2].inputs[1..]);
    assert_eq!(graph.nodes[3].outputs, ["y"]);
    assert_eq!(graph.initializers.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_number_differs_from_its_block_by_half_a_step_at_most(
        numbers in proptest::collection::vec(-1e3_f32..1e3, 128 * 3), is_transposed in any::<bool>(),
    ) {
        let place = Place::new();
        for blocks in Blocks::iter() {
            place.in_blocks(&product_of(&numbers, [128, 3], is_transposed), blocks, Dtype::F32).unwrap();
            let made = place.dequantised();
            for channel in 0..3 {
                let of = |from: &[f32]| (0..128).map(|row| from[row * 3 + channel]).collect::<Vec<f32>>();
                let (before, after) = (of(&numbers), of(&made));
                for (before, after) in before.chunks(blocks.size()).zip(after.chunks(blocks.size())) {
                    let farthest = before.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
                    let (least, most) =
                        before.iter().fold((0.0_f32, 0.0_f32), |(least, most), &it| (least.min(it), most.max(it)));
                    let middle = (1_u32 << (blocks.bits() - 1)) as f32;
                    let step = if blocks.is_symmetric() { farthest / middle } else { (most - least) / 15.0 };
                    for (before, after) in before.iter().zip(after) {
                        // On the side of 0 that has one integer less, the last number may be a whole step away; so may
                        // a number at the end of a range whose zero point was rounded.
                        let is_last = before.abs() > farthest - step || !blocks.is_symmetric();
                        let allowed = if is_last { 1.0 } else { 0.5 };
                        prop_assert!((before - after).abs() <= step * (allowed + 1e-3), "{blocks}: {before} {after} {step}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_stays_and_what_fits_too_little_is_refused() {
    let place = Place::new();
    let numbers = |count: usize| (0..count).map(|at| at as f32).collect::<Vec<f32>>();
    let nodes = vec![NodeProto::new("MatMul", &["x", "a"], "h"), NodeProto::new("MatMul", &["h", "b"], "y")];
    let two = |rows: i64| {
        let [a, b] = [[64, rows], [rows, 8]];
        let weight =
            |name: &str, [rows, columns]: [i64; 2]| weight(name, &[rows, columns], &numbers((rows * columns) as usize));
        model(nodes.clone(), vec![weight("a", a), weight("b", b)], &[("x", element::FLOAT)])
    };
    let graph = place.in_blocks(&two(33), Blocks::Int4, Dtype::I8).unwrap();
    assert_eq!(operators(&graph), ["MatMulNBits", "MatMul"]);
    let checked = |blocks: Blocks| {
        let mut share = Share::default();
        share.add(&place.path("from.onnx"), blocks).unwrap();
        share.check(blocks).map_err(|why| why.to_string())
    };
    assert_eq!(checked(Blocks::Int4), Ok(()), "64 × 33 of 64 × 33 + 33 × 8");
    let why = "int4-128 needs products with constant matrices whose rows are multiples of 128, and only 0 % of the parameters are in such rows";
    assert_eq!(checked(Blocks::Int4Long), Err(why.to_owned()));
    let refused = place.in_blocks(&two(33), Blocks::Int4Long, Dtype::I8).unwrap_err();
    assert!(
        format!("{refused:#}").ends_with("no product with a constant matrix whose rows are multiples of 128"),
        "{refused:#}"
    );

    // A table that is only looked up is not a product; one that is also multiplied is.
    let nodes = [
        NodeProto::new("Gather", &["table", "x"], "h"),
        NodeProto::new("MatMul", &["h", "w"], "g"),
        NodeProto::new("Transpose", &["table"], "t"),
        NodeProto::new("MatMul", &["g", "t"], "y"),
    ];
    let initializers = vec![weight("table", &[500, 32], &numbers(16_000)), weight("w", &[32, 32], &numbers(1024))];
    for (count, operators_made) in
        [(2, vec!["Gather", "MatMulNBits"]), (4, vec!["Gather", "MatMulNBits", "MatMulNBits"])]
    {
        let model = model(nodes[..count].to_vec(), initializers.clone(), &[("x", element::INT64)]);
        let graph = place.in_blocks(&model, Blocks::Int4, Dtype::I8).unwrap();
        assert_eq!(operators(&graph), operators_made);
        assert_eq!(checked(Blocks::Int4), Ok(()));
    }

    let broken = product_of(&[[1.0; 31].as_slice(), &[f32::NAN]].concat(), [32, 1], false);
    let refused = format!("{:#}", place.in_blocks(&broken, Blocks::Int4, Dtype::I8).unwrap_err());
    assert!(refused.ends_with("initializer \"w\" has a value that is not finite: it has no int4 form"), "{refused}");
}

#[test]
fn a_bias_of_the_operator_itself_is_refused_and_not_left_out() {
    let place = Place::new();
    let product = NodeProto::new("MatMulNBits", &["x", "w", "scales", "", "", "b"], "y");
    let node = NodeProto { domain: "com.microsoft".into(), ..product };
    let graph = model(vec![node], Vec::new(), &[("x", element::FLOAT)]);
    std::fs::write(place.path("to.onnx"), graph.encode_to_vec()).unwrap();
    let why = dequantise(&place.path("to.onnx"), &place.path("exact.onnx")).unwrap_err().to_string();
    assert!(why.contains("(node \"MatMulNBits_y\") has a bias or an order of its own"), "{why}");
}
