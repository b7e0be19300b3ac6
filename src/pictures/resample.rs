//! Pillow's bilinear resampling of 8-bit pictures, to the bit.
//!
//! The filter is a triangle as wide as two pixels of the picture or of the result, whichever are larger, so a smaller
//! picture has no aliases. Rows are resampled first and columns then, each rounded to 8 bits, with weights in fixed
//! point: Pillow 13, `Resample.c`. `fast_image_resize` 6.1, whose weights have 16 bits, was off by one level in a
//! quarter of the values.

use super::decode::Picture;

/// The fractional bits of a weight.
const PRECISION: u32 = 32 - 8 - 2;
const HALF: i32 = 1 << (PRECISION - 1);
const CHANNELS: usize = 3;

/// The pixels of the picture that make a pixel of the result, with their weights.
struct Taps {
    /// The first pixel of the picture that counts.
    first: usize,
    /// The weights of that pixel and of those after it; their sum is 1.
    weights: Vec<i32>,
}

/// Resamples the picture to another size; no side may be 0.
pub fn resample(picture: &Picture, width: usize, height: usize) -> Picture {
    let mut pixels = None;
    if width != picture.width {
        pixels = Some(resample_rows(&picture.pixels, picture.width, width));
    }
    if height != picture.height {
        let rows = pixels.as_ref().unwrap_or(&picture.pixels);
        pixels = Some(resample_columns(rows, width * CHANNELS, picture.height, height));
    }
    Picture { width, height, pixels: pixels.unwrap_or_else(|| picture.pixels.clone()) }
}

fn resample_rows(pixels: &[u8], from: usize, to: usize) -> Vec<u8> {
    let taps = taps(from, to);
    let mut resampled = Vec::with_capacity(pixels.len() / from * to);
    for row in pixels.chunks_exact(from * CHANNELS) {
        for Taps { first, weights } in &taps {
            let mut sums = [HALF; CHANNELS];
            for (pixel, weight) in row[first * CHANNELS..].as_chunks::<CHANNELS>().0.iter().zip(weights) {
                for (sum, level) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(*level);
                }
            }
            resampled.extend(sums.map(level_of));
        }
    }
    resampled
}

/// `stride` is the length of a row.
fn resample_columns(pixels: &[u8], stride: usize, from: usize, to: usize) -> Vec<u8> {
    let mut resampled = Vec::with_capacity(stride * to);
    let mut sums = vec![0; stride];
    for Taps { first, weights } in taps(from, to) {
        sums.fill(HALF);
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(&weights) {
            for (sum, level) in sums.iter_mut().zip(row) {
                *sum += weight * i32::from(*level);
            }
        }
        resampled.extend(sums.iter().copied().map(level_of));
    }
    resampled
}

fn level_of(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    let of_pixel = |place| {
        let centre = (place as f64 + 0.5) * scale;
        // Casts to whole numbers truncate, and give 0 for negative numbers.
        let first = (centre - support + 0.5) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let triangle = |pixel| (1.0 - ((pixel as f64 - centre + 0.5) * (1.0 / support)).abs()).max(0.0);
        let sum: f64 = (first..end).map(triangle).sum();
        let fixed = |weight: f64| (weight / sum * f64::from(1 << PRECISION) + 0.5) as i32;
        Taps { first, weights: (first..end).map(|pixel| fixed(triangle(pixel))).collect() }
    };
    (0..to).map(of_pixel).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plain_picture_stays_plain(from in 1_usize..60, to in 1_usize..60, level: u8) {
            let picture = Picture { width: from, height: to, pixels: vec![level; from * to * CHANNELS] };
            let resampled = resample(&picture, to, from);
            prop_assert_eq!(resampled, Picture { width: to, height: from, pixels: picture.pixels });
        }
    }

    #[test]
    fn a_smaller_picture_is_a_weighted_mean_and_a_larger_one_is_interpolated() {
        let row = |levels: &[u8]| Picture {
            width: levels.len(),
            height: 1,
            pixels: levels.iter().flat_map(|&level| [level; CHANNELS]).collect(),
        };
        // Weights of 5, 7, 7 and 5 twenty-fourths.
        assert_eq!(resample(&row(&[0, 120, 120, 0]), 1, 1), row(&[70]));
        assert_eq!(resample(&row(&[0, 80]), 4, 1), row(&[0, 20, 60, 80]));
    }
}
