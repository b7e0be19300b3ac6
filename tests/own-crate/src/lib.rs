//! A small inference engine: it knows one network, which reads handwritten digits, and computes it with `matrixmultiply`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use safetensors::SafeTensors;

/// Height and width of a picture.
pub const SIDE: usize = 8;
/// Scores per picture.
pub const CLASSES: usize = 10;

/// Two convolutions of 3 × 3, each with a maximum over 2 × 2, and two products: `[batch, 8, 8]` to `[batch, 10]`.
pub struct Network {
    convolutions: [Layer; 2],
    products: [Layer; 2],
}

/// Weights `[outputs, inputs]` and a bias for each output.
struct Layer {
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Layer {
    fn inputs(&self) -> usize {
        self.weights.len() / self.bias.len()
    }

    /// `columns` are `[inputs, count]`; the result is `[outputs, count]`.
    fn apply(&self, columns: &[f32], count: usize) -> Vec<f32> {
        let (outputs, inputs) = (self.bias.len(), self.inputs());
        assert_eq!(columns.len(), inputs * count);
        let mut result: Vec<f32> = self.bias.iter().flat_map(|&bias| std::iter::repeat_n(bias, count)).collect();
        let row = count as isize;
        // All three have the sizes that are said: the assertion above, and how `result` was made.
        unsafe {
            matrixmultiply::sgemm(
                outputs,
                inputs,
                count,
                1.0,
                self.weights.as_ptr(),
                inputs as isize,
                1,
                columns.as_ptr(),
                row,
                1,
                1.0,
                result.as_mut_ptr(),
                row,
                1,
            );
        }
        result
    }
}

impl Network {
    /// Reads the weights by the names of PyTorch's state dict.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let file = SafeTensors::deserialize(&bytes)?;
        let numbers = |name: String| -> Result<Vec<f32>> {
            let bytes = file.tensor(&name)?.data();
            Ok(bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect())
        };
        let layer = |name: &str| -> Result<Layer> {
            let (weights, bias) = (numbers(format!("{name}.weight"))?, numbers(format!("{name}.bias"))?);
            ensure!(!bias.is_empty() && weights.len() % bias.len() == 0, "{name} has other shapes");
            Ok(Layer { weights, bias })
        };
        Ok(Network { convolutions: [layer("conv1")?, layer("conv2")?], products: [layer("fc1")?, layer("fc2")?] })
    }

    /// The scores `[batch, 10]` of pictures `[batch, 8, 8]`.
    pub fn scores(&self, pictures: &[f32]) -> Vec<f32> {
        pictures.chunks_exact(SIDE * SIDE).flat_map(|picture| self.scores_of_one(picture)).collect()
    }

    fn scores_of_one(&self, picture: &[f32]) -> Vec<f32> {
        let (mut values, mut side) = (picture.to_vec(), SIDE);
        for layer in &self.convolutions {
            let mut convolved = layer.apply(&patches(&values, side), side * side);
            rectify(&mut convolved);
            values = maxima(&convolved, side);
            side /= 2;
        }
        let mut hidden = self.products[0].apply(&values, 1);
        rectify(&mut hidden);
        self.products[1].apply(&hidden, 1)
    }
}

fn rectify(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = value.max(0.0));
}

/// The 3 × 3 surroundings of each point of `[channels, side, side]`, with zeros outside: `[9 × channels, side × side]`.
fn patches(values: &[f32], side: usize) -> Vec<f32> {
    let mut patches = Vec::with_capacity(9 * values.len());
    for channel in values.chunks_exact(side * side) {
        for (down, right) in (0..3).flat_map(|down| (0..3).map(move |right| (down, right))) {
            for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                let (y, x) = (y + down, x + right);
                let is_inside = (1..=side).contains(&y) && (1..=side).contains(&x);
                patches.push(if is_inside { channel[(y - 1) * side + x - 1] } else { 0.0 });
            }
        }
    }
    patches
}

/// The largest of each 2 × 2 points.
fn maxima(values: &[f32], side: usize) -> Vec<f32> {
    let half = side / 2;
    let mut maxima = Vec::with_capacity(values.len() / 4);
    for channel in values.chunks_exact(side * side) {
        for (y, x) in (0..half).flat_map(|y| (0..half).map(move |x| (2 * y, 2 * x))) {
            let at = |y: usize, x: usize| channel[y * side + x];
            maxima.push(at(y, x).max(at(y, x + 1)).max(at(y + 1, x)).max(at(y + 1, x + 1)));
        }
    }
    maxima
}

/// Reads a picture of 8 × 8 that is written with the digits 0 to 9: the darker a point, the larger its digit.
pub fn parse_picture(text: &str) -> Vec<f32> {
    text.bytes().filter(u8::is_ascii_digit).map(|digit| f32::from(digit - b'0') / 9.0).collect()
}
