//! The source of the samples on which a model's accuracy is evaluated, and which are timed if that is asked for.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// The samples of a model's quality: `data_source` of a suite or of one of its models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "DataSourceToml", into = "DataSourceToml")]
pub enum DataSource {
    /// Seeded numbers without labels: outputs are compared with those of the original.
    #[default]
    Synthetic,
    /// A safetensors file with `input.<name>`, one row per sample, and perhaps `label`, i64.
    Recorded(PathBuf),
    /// Images in one folder per class: `<path>/<class>/<name>.jpg`.
    ImageFolder(ImageFolderSettings),
    /// A text file with one text per line, for models that take tokens.
    Text(PathBuf),
}

/// How the images of a folder become inputs `[batch, 3, height, width]`, as with torchvision's transforms for
/// classification: resize the shorter side, crop the centre, scale to 0..1, normalise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageFolderSettings {
    pub path: PathBuf,
    /// A text file with one class name per line, in the order of the model's outputs. The default is `classes.txt` in the
    /// folder. Without such a file the classes are the folders in the order of their names, as for torchvision's
    /// `ImageFolder`.
    pub classes: Option<PathBuf>,
    /// The folder of the images' masks or depth maps, for models that are judged by them: files with the names of the
    /// images that end with `.png`, `.npy` or `.npz`. The default is the folder `labels` beside the images' folder, if
    /// it exists.
    pub labels: Option<PathBuf>,
    /// The shorter side after resizing, in pixels. The default is 256/224 of the model's input.
    pub resize: Option<usize>,
    /// The means of red, green and blue, for values from 0 to 1. The default is ImageNet's.
    #[serde(default = "imagenet_mean")]
    pub mean: [f32; 3],
    /// The standard deviations, as `mean`.
    #[serde(default = "imagenet_std")]
    pub std: [f32; 3],
    /// Use this many images, evenly spread over all of them.
    pub samples: Option<usize>,
}

fn imagenet_mean() -> [f32; 3] {
    [0.485, 0.456, 0.406]
}

fn imagenet_std() -> [f32; 3] {
    [0.229, 0.224, 0.225]
}

impl ImageFolderSettings {
    /// ImageNet's usual preparation of the images below `path`.
    pub fn new(path: PathBuf) -> Self {
        ImageFolderSettings {
            path,
            classes: None,
            labels: None,
            resize: None,
            mean: imagenet_mean(),
            std: imagenet_std(),
            samples: None,
        }
    }

    /// The folder of masks or depth maps: that of the settings, or `labels` beside the images' folder if it exists.
    pub fn folder_of_labels(&self) -> Option<PathBuf> {
        let beside = || Some(self.path.with_file_name("labels")).filter(|beside| beside.is_dir());
        self.labels.clone().or_else(beside)
    }
}

impl DataSource {
    /// The samples of a folder of images or of a file: texts if its name ends with `.txt`, and tensors otherwise.
    pub fn of_path(path: PathBuf) -> Self {
        match path.extension() {
            _ if path.is_dir() => DataSource::ImageFolder(ImageFolderSettings::new(path)),
            Some(extension) if extension == "txt" => DataSource::Text(path),
            _ => DataSource::Recorded(path),
        }
    }

    /// The name in records.
    pub fn name(&self) -> String {
        let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            DataSource::Synthetic => "synthetic".into(),
            DataSource::Recorded(path) => stem(path),
            DataSource::ImageFolder(settings) => format!("image-folder {}", settings.path.display()),
            DataSource::Text(path) => format!("text {}", path.display()),
        }
    }

    /// The text of a flag that names the source. The settings of a folder of images are not in it.
    pub fn flag(&self) -> String {
        match self {
            DataSource::Synthetic => "synthetic".into(),
            DataSource::Recorded(path) => format!("recorded:{}", path.display()),
            DataSource::ImageFolder(settings) => format!("image-folder:{}", settings.path.display()),
            DataSource::Text(path) => format!("text:{}", path.display()),
        }
    }

    /// The same source with its paths relative to `folder`.
    pub fn relative_to(self, folder: &Path) -> Self {
        match self {
            DataSource::Synthetic => DataSource::Synthetic,
            DataSource::Recorded(path) => DataSource::Recorded(folder.join(path)),
            DataSource::Text(path) => DataSource::Text(folder.join(path)),
            DataSource::ImageFolder(settings) => DataSource::ImageFolder(ImageFolderSettings {
                path: folder.join(&settings.path),
                classes: settings.classes.map(|classes| folder.join(classes)),
                labels: settings.labels.map(|labels| folder.join(labels)),
                ..settings
            }),
        }
    }
}

/// The forms in a file: `"synthetic"`, `"image-folder:PATH"`, `"recorded:PATH"`, `"text:PATH"`, or a table with all settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum DataSourceToml {
    Short(String),
    Full {
        #[serde(rename = "image-folder")]
        image_folder: ImageFolderSettings,
    },
}

impl TryFrom<DataSourceToml> for DataSource {
    type Error = anyhow::Error;

    fn try_from(toml: DataSourceToml) -> Result<Self> {
        match toml {
            DataSourceToml::Short(text) => text.parse(),
            DataSourceToml::Full { image_folder } => Ok(DataSource::ImageFolder(image_folder)),
        }
    }
}

impl From<DataSource> for DataSourceToml {
    fn from(source: DataSource) -> Self {
        match source {
            DataSource::ImageFolder(image_folder) => DataSourceToml::Full { image_folder },
            other => DataSourceToml::Short(other.flag()),
        }
    }
}

impl FromStr for DataSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "synthetic" => Ok(DataSource::Synthetic),
            Some(("recorded", path)) if !path.is_empty() => Ok(DataSource::Recorded(path.into())),
            Some(("text", path)) if !path.is_empty() => Ok(DataSource::Text(path.into())),
            Some(("image-folder", path)) if !path.is_empty() => {
                Ok(DataSource::ImageFolder(ImageFolderSettings::new(path.into())))
            }
            _ => bail!(
                "unknown data source {text:?}; there are synthetic, image-folder:PATH, recorded:FILE.safetensors (or .npz) and text:FILE"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        data_source: DataSource,
    }

    #[test]
    fn short_and_full_forms_are_read_and_written() {
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.data_source);
        assert_eq!(read("data_source = 'synthetic'"), Ok(DataSource::Synthetic));
        let Ok(DataSource::ImageFolder(plain)) = read("data_source = 'image-folder:a/b'") else { panic!() };
        assert_eq!(plain, ImageFolderSettings::new("a/b".into()));
        let full = read("data_source = { image-folder = { path = 'a', resize = 232, samples = 100 } }").unwrap();
        let DataSource::ImageFolder(settings) = &full else { panic!() };
        assert_eq!((settings.resize, settings.samples, settings.mean[0]), (Some(232), Some(100), 0.485));
        let file = File { data_source: full };
        assert_eq!(toml::from_str::<File>(&toml::to_string(&file).unwrap()), Ok(file));
        assert!(read("data_source = 'imagenet'").unwrap_err().to_string().contains("unknown data source"));
        assert!(read("data_source = { image-folder = { path = 'a', resise = 1 } }").is_err());
    }

    #[test]
    fn paths_are_relative_to_the_file_that_names_them() {
        let source: DataSource = "image-folder:pictures".parse().unwrap();
        assert_eq!(source.relative_to(Path::new("suites")).name(), "image-folder suites/pictures");
    }
}
