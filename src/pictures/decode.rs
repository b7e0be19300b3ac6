//! From a file's bytes to red, green and blue, as Pillow 13's `Image.open(…).convert("RGB")`.

use anyhow::{Context, Result, bail};

use super::picture::Picture;
use super::{jpeg, png};

/// # Errors
/// The bytes are no JPEG or PNG, are not whole, or say that they are of more than [`MAX_PIXELS`](super::picture::MAX_PIXELS).
pub fn decode(bytes: &[u8]) -> Result<Picture> {
    match bytes {
        [] => bail!("the file is empty"),
        [0xff, 0xd8, 0xff, ..] => jpeg::decode(bytes).context("not a whole JPEG"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => png::decode(bytes).context("not a whole PNG"),
        _ => bail!("neither a JPEG nor a PNG"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_pictures() {
        assert_eq!(decode(b"").unwrap_err().to_string(), "the file is empty");
        assert_eq!(decode(b"GIF89a").unwrap_err().to_string(), "neither a JPEG nor a PNG");
        assert!(decode(b"\xff\xd8\xff\xe0").unwrap_err().to_string().contains("not a whole JPEG"));
        assert!(decode(b"\x89PNG\r\n\x1a\n").unwrap_err().to_string().contains("not a whole PNG"));
    }
}
