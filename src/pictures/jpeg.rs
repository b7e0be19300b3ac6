//! JPEG to red, green and blue, grey and inks among them: ink is inverted in the file, as Adobe writes it and Pillow
//! reads it.

use anyhow::{Context, Result, ensure};

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::picture::{Picture, check_size};

/// The largest side that the format can say.
const MAX_SIDE: usize = 65_535;
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];

/// # Errors
/// The bytes are no whole JPEG, or have a form that the decoder lacks, such as arithmetic coding.
pub fn decode(bytes: &[u8]) -> Result<Picture> {
    // Strict: a truncated file is an error, as for Pillow, and not a grey area.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers()?;
    let (width, height) = decoder.dimensions().context("it has no size")?;
    check_size(width, height)?;
    let mut pixels = vec![0; width * height * 3];
    decoder.decode_into(&mut pixels)?;
    // The decoder fills in missing rows at the end, even if it is strict.
    ensure!(bytes.windows(2).rev().any(|marker| marker == END_OF_IMAGE), "its end is missing");
    Ok(Picture { width, height, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] =
        b"\xff\xd8\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x01\x11\x00\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00";

    #[test]
    fn a_header_that_says_too_much_is_an_error() {
        assert_eq!(decode(HEADER).unwrap_err().to_string(), "65535 x 65535 pixels are more than 178956970");
    }

    #[test]
    fn a_file_without_its_end_is_an_error() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pictures/waves/grey.jpg");
        let bytes = std::fs::read(path).unwrap();
        assert!(decode(&bytes).is_ok());
        assert_eq!(decode(&bytes[..bytes.len() - 1]).unwrap_err().to_string(), "its end is missing");
    }
}
