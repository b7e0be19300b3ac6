//! From a file's bytes to red, green and blue, as Pillow 13's `Image.open(…).convert("RGB")`.

use super::picture::Picture;
use super::{jpeg, png};

/// # Errors
/// The bytes are no JPEG or PNG, are not whole, or say that they are of more than [`MAX_PIXELS`](super::picture::MAX_PIXELS).
pub fn decode(bytes: &[u8]) -> Result<Picture, String> {
    match bytes {
        [] => Err("the file is empty".into()),
        [0xff, 0xd8, 0xff, ..] => jpeg::decode(bytes).map_err(|error| format!("not a whole JPEG: {error}")),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => {
            png::decode(bytes).map_err(|error| format!("not a whole PNG: {error}"))
        }
        _ => Err("neither a JPEG nor a PNG".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_pictures() {
        assert_eq!(decode(b"").unwrap_err(), "the file is empty");
        assert_eq!(decode(b"GIF89a").unwrap_err(), "neither a JPEG nor a PNG");
        assert!(decode(b"\xff\xd8\xff\xe0").unwrap_err().contains("not a whole JPEG"));
        assert!(decode(b"\x89PNG\r\n\x1a\n").unwrap_err().contains("not a whole PNG"));
    }
}
