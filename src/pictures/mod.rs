//! The pictures of a folder as a model's inputs, prepared as torchvision 0.26 prepares them for its classifiers.
//!
//! On disk: `<path>/<class>/<name>.jpg`, `.jpeg` or `.png`, as for torchvision's `ImageFolder`; folders inside a class
//! belong to it. The first bytes of a file say what kind of picture it is: ImageNet has a PNG with the name `.JPEG`.

mod classes;
mod decode;
mod listing;
mod resample;
mod transform;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use self::classes::labels;
use self::listing::Listing;
use self::transform::Transform;
use crate::definition::ImageFolderSettings;

/// The pictures of a folder and their labels. Nothing is decoded before [`sample`](Self::sample) asks for it.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    listing: Listing,
    /// The label of each folder.
    labels: Vec<i64>,
    settings: ImageFolderSettings,
    transform: Transform,
}

impl ImageFolder {
    /// Lists the pictures below `settings.path`, sorted by path; with `settings.samples` that many of them, evenly
    /// spread. `size` is the model's input, height and width in pixels; `outputs` the number of its classes if it is
    /// known.
    ///
    /// The label of a picture is the place of its class
    /// - among the lines of the file `settings.classes`, or of `classes.txt` in the folder, if there is one;
    /// - else among the names of the folders, sorted, as for torchvision's `ImageFolder`;
    /// - but if `outputs` is another number than that of the folders, or not known, and the folders' names are whole
    ///   numbers below it, these are the labels.
    ///
    /// # Errors
    /// The folder is missing or has no folder of a class or no picture, the labels are ambiguous, or the settings leave no
    /// picture. The message says what to change.
    pub fn open(settings: &ImageFolderSettings, size: [usize; 2], outputs: Option<usize>) -> Result<Self> {
        let transform = Transform::new(settings, size)?;
        ensure!(settings.samples != Some(0), "samples = 0 leaves no picture");
        let mut listing = Listing::read(&settings.path)?;
        let labels = labels(&listing.folders, settings, outputs)?;
        let all = listing.pictures.len();
        let count = settings.samples.map_or(all, |samples| samples.min(all));
        listing.pictures = (0..count).map(|sample| listing.pictures[sample * all / count].clone()).collect();
        Ok(ImageFolder { listing, labels, settings: settings.clone(), transform })
    }

    /// Checks the labels against the number of a model's outputs, if [`open`](Self::open) did not know it.
    ///
    /// # Errors
    /// The folders do not say which outputs are theirs, or say other labels than they were given; the message says what to
    /// change.
    pub fn check_width(&self, width: usize) -> Result<()> {
        if labels(&self.listing.folders, &self.settings, Some(width))? == self.labels {
            return Ok(());
        }
        bail!(
            "{} has folders of {} classes and the model has {width} outputs, which its definition does not say: with as many \
             outputs as folders a label is the place of the folder's name in order, and else the number that it is named \
             by. Say which by writing the names of the classes into {}, one per line in the order of the outputs",
            self.settings.path.display(),
            self.listing.folders.len(),
            self.settings.path.join(classes::BESIDE).display()
        )
    }

    /// The number of pictures, limited by `samples` of the settings.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.listing.pictures.len()
    }

    /// The shape of a prepared picture: `[3, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        let [height, width] = self.transform.size();
        [3, height, width]
    }

    /// The file of a picture, if there are more than `index`.
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.listing.pictures.get(index).map(|(path, _)| path.as_path())
    }

    /// Decodes and prepares a picture: values `[3, height, width]`, red, green and blue, in row-major order, and its
    /// label.
    ///
    /// The steps are those of torchvision's `transforms.Resize`, `CenterCrop`, `ToTensor` and `Normalize` on what
    /// Pillow's `Image.open(…).convert("RGB")` gives. An orientation in Exif data turns nothing, as with torchvision's
    /// loader.
    ///
    /// # Errors
    /// The file cannot be read, is no whole JPEG or PNG, or is too large; the message names it. No picture has this
    /// index.
    pub fn sample(&self, index: usize) -> Result<(Vec<f32>, i64)> {
        let pictures = &self.listing.pictures;
        let none = || format!("there is no picture {index}: there are {}", pictures.len());
        let (path, folder) = pictures.get(index).with_context(none)?;
        let bytes = fs_err::read(path)?;
        let values = decode::decode(&bytes).and_then(|picture| self.transform.apply(&picture));
        Ok((values.with_context(|| path.display().to_string())?, self.labels[*folder]))
    }
}
