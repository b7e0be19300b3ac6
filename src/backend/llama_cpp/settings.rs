//! llama.cpp's settings: the defaults of a case, and the changes in `INFERBENCH_LLAMA_SETTINGS`.

use crate::definition::{CaseFailure, Dtype};
use crate::paths::variable;

/// The variable with settings other than the defaults: `flash-attention=on,cache=q8_0,mmap=off,repack=off,ubatch=256`.
const VARIABLE: &str = "INFERBENCH_LLAMA_SETTINGS";

/// Types of keys and values in the cache, with ggml's numbers.
const CACHES: [(&str, i32); 5] = [("f32", 0), ("f16", 1), ("q8_0", 8), ("q4_0", 2), ("bf16", 30)];

/// The settings of a context, and of how a file is loaded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub flash_attention: FlashAttention,
    /// A name of [`CACHES`].
    pub cache: &'static str,
    pub maps_file: bool,
    pub repacks: bool,
    /// Tokens that are computed at once.
    pub micro_batch: u32,
}

/// llama.cpp's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(super) enum FlashAttention {
    Auto = -1,
    Off = 0,
    On = 1,
}

impl Settings {
    /// The settings of a case. A case in f32 computes everything in f32, as in the other backends: flash attention is
    /// off, and the cache is f32. Other cases have llama.cpp's defaults. [`VARIABLE`] may change both.
    ///
    /// # Errors
    /// The variable has an invalid setting.
    pub fn of(dtype: Dtype) -> Result<Self, CaseFailure> {
        let text = variable(VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
        Self::read(dtype, &text).map_err(|why| CaseFailure::failed(format!("{VARIABLE}: {why}")))
    }

    /// The default settings of f32, which no variable changes.
    pub fn exact() -> Self {
        Self::default_of(Dtype::F32)
    }

    fn default_of(dtype: Dtype) -> Self {
        let is_exact = dtype == Dtype::F32;
        Settings {
            flash_attention: if is_exact { FlashAttention::Off } else { FlashAttention::Auto },
            cache: if is_exact { "f32" } else { "f16" },
            maps_file: true,
            repacks: true,
            micro_batch: 512,
        }
    }

    fn read(dtype: Dtype, text: &str) -> Result<Self, String> {
        let mut settings = Self::default_of(dtype);
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let wrong = || {
                format!(
                    "{setting:?} is not a setting; write flash-attention=on, cache=q8_0, mmap=off, repack=off or ubatch=512"
                )
            };
            let (name, value) = setting.split_once('=').ok_or_else(wrong)?;
            let switch = || match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(wrong()),
            };
            match name {
                "flash-attention" => settings.flash_attention = value.parse().map_err(|_| wrong())?,
                "cache" => {
                    let known = CACHES.iter().find(|(name, _)| *name == value);
                    let names = || CACHES.map(|(name, _)| name).join(", ");
                    settings.cache = known.ok_or_else(|| format!("no cache type {value:?}; there are {}", names()))?.0;
                }
                "mmap" => settings.maps_file = switch()?,
                "repack" => settings.repacks = switch()?,
                "ubatch" => {
                    let size = value.parse().ok().filter(|size| (1..=65_536).contains(size));
                    settings.micro_batch = size.ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        Ok(settings)
    }

    /// ggml's number of the cache's type.
    pub fn cache_number(&self) -> i32 {
        CACHES.iter().find(|(name, _)| *name == self.cache).map_or(0, |(_, number)| *number)
    }

    /// All settings in words, for the record.
    pub fn in_words(&self) -> String {
        let Settings { flash_attention, cache, micro_batch, .. } = self;
        let [mmap, repacking] = [self.maps_file, self.repacks].map(|is_on| if is_on { "on" } else { "off" });
        format!(
            "flash attention {flash_attention}, cache {cache}, mmap {mmap}, repacking {repacking}, micro-batch {micro_batch}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_is_exact_and_other_forms_have_the_defaults_of_llama_cpp() {
        let words = |dtype| Settings::read(dtype, "").unwrap().in_words();
        assert_eq!(words(Dtype::F32), "flash attention off, cache f32, mmap on, repacking on, micro-batch 512");
        assert_eq!(words(Dtype::I8), "flash attention auto, cache f16, mmap on, repacking on, micro-batch 512");
    }

    #[test]
    fn settings_are_read_and_what_is_none_is_refused() {
        let read = |text: &str| Settings::read(Dtype::I8, text).map(|settings| settings.in_words());
        let all = "flash-attention=on, cache=q8_0,mmap=off,repack=off,ubatch=64";
        assert_eq!(read(all).unwrap(), "flash attention on, cache q8_0, mmap off, repacking off, micro-batch 64");
        for wrong in ["mmap=maybe", "ubatch=0", "threads=2", "mmap"] {
            assert!(read(wrong).unwrap_err().contains("is not a setting"), "{wrong}");
        }
        assert_eq!(read("cache=q9").unwrap_err(), "no cache type \"q9\"; there are f32, f16, q8_0, q4_0, bf16");
    }
}
