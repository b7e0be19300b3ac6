//! The pictures of a folder as a model's inputs, prepared as torchvision 0.26 prepares them for its classifiers.
//!
//! It takes a folder, and the sizes that a model takes. It gives tensors with their labels. Inputs of other kinds are
//! in `fixture` and `texts`.
//!
//! On disk: `<path>/<class>/<name>.jpg`, `.jpeg` or `.png`, as for torchvision's `ImageFolder`; folders inside a class
//! belong to it. The first bytes of a file say what kind of picture it is: ImageNet has a PNG with the name `.JPEG`.

mod classes;
mod decode;
mod resample;
mod transform;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use walkdir::{DirEntry, WalkDir};

use self::classes::labels;
pub use self::decode::{Mask, decode_mask};
#[cfg(fuzzing)]
pub use self::decode::{decode, size};
use self::transform::Transform;
use crate::definition::ImageFolderSettings;

/// The pictures of a folder and their labels. Nothing is decoded before [`sample`](Self::sample) asks for it.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    /// The names of the folders of the classes, sorted.
    folders: Vec<String>,
    /// Sorted by path.
    pictures: Vec<Listed>,
    /// The label of each folder.
    labels: Vec<i64>,
    settings: ImageFolderSettings,
    transform: Transform,
}

/// The file of a picture, and the position of its folder among those of the classes.
type Listed = (PathBuf, usize);

impl ImageFolder {
    /// Lists the pictures below `settings.path`, sorted by path; with `settings.samples` that many of them, evenly
    /// spread. `size` is the model's input, height and width in pixels; `outputs` the number of its classes if it is
    /// known.
    ///
    /// The label of a picture is the place of its class
    /// - among the lines of the file `settings.classes`, or of `classes.txt` in the folder, if there is one;
    /// - else among the names of the folders, sorted, as for torchvision's `ImageFolder`;
    /// - but if `outputs` is unknown or differs from the number of folders, and the folders' names are whole numbers
    ///   below it, these are the labels.
    ///
    /// # Errors
    /// The folder is missing or has no folder of a class or no picture, the labels are ambiguous, or the settings leave
    /// no picture. The message says what to change.
    pub fn open(settings: &ImageFolderSettings, size: [usize; 2], outputs: Option<usize>) -> Result<Self> {
        Self::of(settings, size, true, outputs)
    }

    /// Lists the pictures at any depth below `settings.path`, as [`open`](Self::open) does, without labels.
    ///
    /// # Errors
    /// The folder is missing or has no picture, or the settings leave none.
    pub fn open_without_classes(settings: &ImageFolderSettings, size: [usize; 2]) -> Result<Self> {
        Self::of(settings, size, false, None)
    }

    fn of(settings: &ImageFolderSettings, size: [usize; 2], has_classes: bool, outputs: Option<usize>) -> Result<Self> {
        let transform = Transform::new(settings, size)?;
        ensure!(settings.samples != Some(0), "samples = 0 leaves no picture");
        let (folders, all) = list(&settings.path, has_classes)?;
        let labels = if has_classes { labels(&folders, settings, outputs)? } else { vec![0] };
        let count = settings.samples.map_or(all.len(), |samples| samples.min(all.len()));
        let pictures = (0..count).map(|sample| all[sample * all.len() / count].clone()).collect();
        Ok(ImageFolder { folders, pictures, labels, settings: settings.clone(), transform })
    }

    /// Resizes and crops a map `[height, width]` with one number per pixel of a picture as the picture is, by nearest
    /// pixels; NaN outside the picture. A map that has the size of the result is left as it is.
    ///
    /// # Errors
    /// The map has another size, or the picture cannot be read.
    pub fn fitted_map(&self, index: usize, size: [usize; 2], numbers: Vec<f32>) -> Result<Vec<f32>> {
        let [height, width] = self.transform.size;
        let picture = decode::size(&self.read(index)?)?;
        ensure!(
            size == picture || size == [width, height],
            "it has {} x {} pixels, and the picture has {} x {}",
            size[0],
            size[1],
            picture[0],
            picture[1]
        );
        if size == picture { self.transform.apply_to_map(size, &numbers) } else { Ok(numbers) }
    }

    /// The path of a picture below the folder.
    pub fn path_below(&self, index: usize) -> Option<&Path> {
        self.path(index)?.strip_prefix(&self.settings.path).ok()
    }

    /// Checks the labels against the number of a model's outputs, if [`open`](Self::open) did not know it.
    ///
    /// # Errors
    /// The folders do not say which outputs are theirs, or say other labels than they were given; the message says what
    /// to change.
    pub fn check_width(&self, width: usize) -> Result<()> {
        if labels(&self.folders, &self.settings, Some(width))? == self.labels {
            return Ok(());
        }
        bail!(
            "{} has folders of {} classes and the model has {width} outputs, which its definition does not say. A label is the \
             position of the folder's name in order if there are as many outputs as folders, and otherwise the number \
             that is its name. Write the names of the classes into {}, one per line in the order of the outputs",
            self.settings.path.display(),
            self.folders.len(),
            self.settings.path.join(classes::BESIDE).display()
        )
    }

    /// The number of pictures, limited by `samples` of the settings.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.pictures.len()
    }

    /// The shape of a prepared picture: `[3, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        let [height, width] = self.transform.size;
        [3, height, width]
    }

    /// The file of a picture, if `index` is below [`len`](Self::len).
    pub fn path(&self, index: usize) -> Option<&Path> {
        self.pictures.get(index).map(|(path, _)| path.as_path())
    }

    /// Decodes and prepares a picture: values `[3, height, width]`, red, green and blue, in row-major order, and its
    /// label.
    ///
    /// The steps are those of torchvision's `transforms.Resize`, `CenterCrop`, `ToTensor` and `Normalize` on what
    /// Pillow's `Image.open(…).convert("RGB")` gives. An orientation in Exif data turns nothing, as with torchvision's
    /// loader.
    ///
    /// # Errors
    /// The file cannot be read, is not a whole JPEG or PNG, or is too large; the message names it. Or no picture has
    /// this index.
    pub fn sample(&self, index: usize) -> Result<(Vec<f32>, i64)> {
        let bytes = self.read(index)?;
        let (path, folder) = &self.pictures[index];
        let values = self.prepare(&bytes).with_context(|| path.display().to_string())?;
        Ok((values, self.labels[*folder]))
    }

    /// The bytes of a picture's file.
    ///
    /// # Errors
    /// The file cannot be read, or no picture has this index.
    pub fn read(&self, index: usize) -> Result<Vec<u8>> {
        let none = || format!("there is no picture {index}: there are {}", self.len());
        Ok(fs_err::read(&self.pictures.get(index).with_context(none)?.0)?)
    }

    /// Decodes and prepares the bytes of a file, as [`sample`](Self::sample) does.
    ///
    /// # Errors
    /// They are not a whole JPEG or PNG, or one that is too large.
    pub fn prepare(&self, bytes: &[u8]) -> Result<Vec<f32>> {
        decode::decode(bytes).and_then(|picture| self.transform.apply(&picture))
    }
}

/// The ends of the names that pictures have, in any case.
const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];

/// The names of the folders of the classes, sorted, and the pictures, sorted by path. Hidden files and folders are left
/// out. Without classes, the folder itself counts as the only one.
fn list(path: &Path, has_classes: bool) -> Result<(Vec<String>, Vec<Listed>)> {
    let class = if has_classes { "<class>/" } else { "" };
    let layout = || format!("the pictures of {0} are expected in {0}/{class}<name>.jpg or .png", path.display());
    ensure!(path.is_dir(), "{} is not a folder; {}", path.display(), layout());
    let mut folders = if has_classes { Vec::new() } else { vec![String::new()] };
    let mut pictures = Vec::new();
    let entries = WalkDir::new(path).min_depth(1).follow_links(true).sort_by_file_name();
    let is_hidden = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    for entry in entries.into_iter().filter_entry(|entry| !is_hidden(entry)) {
        let entry = entry?;
        match (entry.depth(), entry.file_type().is_dir()) {
            (1, true) if has_classes => folders.push(entry.file_name().to_string_lossy().into_owned()),
            (1, false) if has_classes => {}
            // The files of a class come directly after its folder.
            _ if is_picture(&entry) => pictures.push((entry.into_path(), folders.len() - 1)),
            _ => {}
        }
    }
    ensure!(!folders.is_empty(), "{} has no folder of a class; {}", path.display(), layout());
    let whose = if has_classes { "no folder of a class in" } else { "no folder at or below" };
    ensure!(!pictures.is_empty(), "{whose} {} has a picture; {}", path.display(), layout());
    Ok((folders, pictures))
}

fn is_picture(entry: &DirEntry) -> bool {
    let extension = entry.path().extension().and_then(OsStr::to_str);
    entry.file_type().is_file()
        && extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_sorted_and_nothing_hidden_is_one() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b/1.png", "b/a/2.JPEG", "b/.3.png", "a/z.jpg", "a/notes.txt", "a/png", ".git/4.png", "5.png"] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        let (folders, pictures) = list(folder.path(), true).unwrap();
        assert_eq!(folders, ["a", "b", "empty"]);
        let pictures: Vec<_> =
            pictures.iter().map(|(path, class)| (path.strip_prefix(folder.path()).unwrap(), *class)).collect();
        assert_eq!(pictures, [(Path::new("a/z.jpg"), 0), (Path::new("b/1.png"), 1), (Path::new("b/a/2.JPEG"), 1)]);
        assert_eq!(list(folder.path(), false).unwrap().1.len(), 4);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_its_own_folder_is_an_error_and_no_endless_walk() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("a/loop")).unwrap();
        assert!(list(folder.path(), true).err().unwrap().to_string().contains("loop"));
    }
}
