//! A picture to a model's input: torchvision 0.26's `Resize`, `CenterCrop`, `ToTensor` and `Normalize` on a Pillow
//! image.

use anyhow::{Context, Result, bail, ensure};

use super::decode::{Picture, check_size};
use super::resample::resample;
use crate::definition::ImageFolderSettings;

/// The steps from a picture to an input.
#[derive(Clone, Debug)]
pub struct Transform {
    /// The shorter side after resizing, in pixels.
    resize: usize,
    /// Height and width of the crop, in pixels.
    pub size: [usize; 2],
    /// The value of each level of red, green and blue.
    values: [[f32; 256]; 3],
}

impl Transform {
    /// # Errors
    /// A side or a standard deviation is 0, or a number is not finite.
    pub fn new(settings: &ImageFolderSettings, size: [usize; 2]) -> Result<Self> {
        let [height, width] = size;
        let resize = settings.resize.unwrap_or_else(|| default_resize(size));
        ensure!(
            height > 0 && width > 0 && resize > 0,
            "pictures of {height} x {width} pixels, resized to {resize}, have no pixel"
        );
        check_size(width, height)?;
        let (mean, std) = (settings.mean, settings.std);
        ensure!(
            mean.iter().chain(&std).all(|value| value.is_finite()) && !std.contains(&0.0),
            "mean {mean:?} and std {std:?} cannot normalise: they must be finite, and no std may be 0"
        );
        // The same steps in the same precision as `to_tensor` and `normalize`, hence the same bits.
        let values = std::array::from_fn(|channel| {
            std::array::from_fn(|level| (level as f32 / 255.0 - mean[channel]) / std[channel])
        });
        Ok(Transform { resize, size, values })
    }

    /// Values `[3, height, width]`.
    ///
    /// # Errors
    /// The picture is so long that it would be too large when resized.
    pub fn apply(&self, picture: &Picture) -> Result<Vec<f32>> {
        let resized = resized(picture, self.resize)?;
        let [height, width] = self.size;
        let [rows, columns] = [sources(resized.height, height), sources(resized.width, width)];
        let mut values = Vec::with_capacity(3 * height * width);
        for (channel, values_of) in self.values.iter().enumerate() {
            for row in &rows {
                for column in &columns {
                    let pixel = row.zip(*column).map(|(y, x)| y * resized.width + x);
                    let level = pixel.map_or(0, |pixel| resized.pixels[3 * pixel + channel]);
                    values.push(values_of[usize::from(level)]);
                }
            }
        }
        Ok(values)
    }

    /// For each pixel of the result, the number of the nearest pixel of a map `[height, width]`; NaN outside the
    /// picture.
    ///
    /// # Errors
    /// The map has no pixel.
    pub fn apply_to_map(&self, [width, height]: [usize; 2], numbers: &[f32]) -> Result<Vec<f32>> {
        let [resized_width, resized_height] = resized_size(width, height, self.resize)?;
        let nearest = |place: usize, from: usize, to: usize| ((2 * place + 1) * from / (2 * to)).min(from - 1);
        let [rows, columns] = [(height, resized_height, 0), (width, resized_width, 1)].map(|(from, to, side)| {
            let place = move |place: Option<usize>| place.map(|place| nearest(place, from, to));
            sources(to, self.size[side]).into_iter().map(place).collect::<Vec<_>>()
        });
        let pixel = |(y, x): (Option<usize>, Option<usize>)| y.zip(x).map_or(f32::NAN, |(y, x)| numbers[y * width + x]);
        Ok(rows.iter().flat_map(|&y| columns.iter().map(move |&x| (y, x))).map(pixel).collect())
    }
}

/// Width and height of a picture whose shorter side is resized.
fn resized_size(width: usize, height: usize, resize: usize) -> Result<[usize; 2]> {
    let longer = |short: usize, long: usize| {
        // `int(resize * long / short)`.
        resize.checked_mul(long).map_or(usize::MAX, |product| product / short)
    };
    Ok(match (width, height) {
        (0, _) | (_, 0) => bail!("it has no pixel"),
        (width, height) if width <= height => [resize, longer(width, height)],
        (width, height) => [longer(height, width), resize],
    })
}

/// The ratio of torchvision's reference recipes, 256 to 224, rounded.
fn default_resize([height, width]: [usize; 2]) -> usize {
    (height.max(width).saturating_mul(256).saturating_add(112)) / 224
}

/// `transforms.Resize(resize)` with its default, bilinear interpolation: the shorter side becomes `resize`. As always
/// for Pillow images, the filter is as wide as the pixels that become one.
fn resized(picture: &Picture, resize: usize) -> Result<Picture> {
    let [width, height] = resized_size(picture.width, picture.height, resize)?;
    check_size(width, height).with_context(|| format!("resized to {resize}"))?;
    Ok(resample(picture, width, height))
}

/// One direction of `CenterCrop`: the pixel of the picture for each pixel of the crop, or none, which is black.
fn sources(picture: usize, crop: usize) -> Vec<Option<usize>> {
    let first = match picture.checked_sub(crop) {
        // `int(round(… / 2.0))`: Python rounds a half to the even number.
        Some(left) => (left as f64 / 2.0).round_ties_even() as isize,
        None => -((crop.abs_diff(picture) / 2) as isize),
    };
    (0..crop).map(|place| first.checked_add_unsigned(place)?.try_into().ok().filter(|&it| it < picture)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ImageFolderSettings {
        ImageFolderSettings::new("pictures".into())
    }

    #[test]
    fn the_crop_is_where_torchvision_has_it() {
        let first = |picture, size| sources(picture, size)[0].unwrap();
        // round(0.5) = 0, round(1.5) = 2, round(2.5) = 2, round(3.5) = 4.
        assert_eq!([33, 35, 37, 39].map(|picture| first(picture, 32)), [0, 2, 2, 4]);
        assert_eq!([32, 34, 36].map(|picture| first(picture, 32)), [0, 1, 2]);
        assert_eq!(sources(3, 8), [None, None, Some(0), Some(1), Some(2), None, None, None]);
    }

    #[test]
    fn the_shorter_side_is_resized() {
        let size = |width, height, resize| {
            let picture = Picture { width, height, pixels: vec![9; width * height * 3] };
            resized(&picture, resize).map(|resized| (resized.width, resized.height))
        };
        assert_eq!(size(13, 7, 5).unwrap(), (9, 5));
        assert_eq!(size(7, 13, 5).unwrap(), (5, 9));
        assert_eq!(size(8, 8, 20).unwrap(), (20, 20));
        assert!(format!("{:#}", size(60_000, 1, 256).unwrap_err()).contains("15360000 x 256 pixels"));
        assert_eq!([[224, 224], [32, 32], [300, 299]].map(default_resize), [256, 37, 343]);
    }

    #[test]
    fn a_map_is_cropped_as_its_picture() {
        let numbers: Vec<f32> = (0..8).map(|number| number as f32).collect();
        let apply = |resize, size| {
            let settings = ImageFolderSettings { resize: Some(resize), ..settings() };
            Transform::new(&settings, size).unwrap().apply_to_map([4, 2], &numbers).unwrap()
        };
        assert_eq!(apply(2, [2, 2]), [1.0, 2.0, 5.0, 6.0]);
        assert_eq!(apply(4, [2, 4]), [1.0, 1.0, 2.0, 2.0, 5.0, 5.0, 6.0, 6.0]);
        let outside = apply(2, [4, 2]);
        assert!(outside[..2].iter().chain(&outside[6..]).all(|number| number.is_nan()), "{outside:?}");
        assert_eq!(outside[2..6], [1.0, 2.0, 5.0, 6.0]);
    }

    #[test]
    fn settings_that_make_no_picture_are_errors() {
        assert!(Transform::new(&settings(), [0, 32]).is_err());
        assert!(Transform::new(&settings(), [usize::MAX, 32]).is_err());
        assert!(Transform::new(&ImageFolderSettings { resize: Some(0), ..settings() }, [32, 32]).is_err());
        let error = Transform::new(&ImageFolderSettings { std: [1.0, 0.0, 1.0], ..settings() }, [32, 32])
            .unwrap_err()
            .to_string();
        assert!(error.contains("std"), "{error}");
    }
}
