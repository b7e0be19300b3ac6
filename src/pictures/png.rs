//! PNG to red, green and blue, as Pillow: a palette is looked up, grey is repeated, transparency is dropped.
//!
//! The upper 8 of 16 bits are taken, as in Pillow for colours. Pillow cuts grey of 16 bits off at 255 instead, which
//! leaves a white picture; this is not copied.

use std::io::Cursor;

use anyhow::{Context, Result, bail};

use png::{ColorType, Decoder, Transformations};

use super::picture::{Picture, check_size};

/// # Errors
/// The bytes are no whole PNG.
pub fn decode(bytes: &[u8]) -> Result<Picture> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info()?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    check_size(width, height)?;
    let size = reader.output_buffer_size().context("it is too large")?;
    let mut samples = vec![0; size];
    let frame = reader.next_frame(&mut samples)?;
    samples.truncate(frame.buffer_size());
    let pixels = match frame.color_type {
        ColorType::Rgb => samples,
        ColorType::Rgba => samples.as_chunks().0.iter().flat_map(|&[red, green, blue, _]| [red, green, blue]).collect(),
        ColorType::Grayscale => samples.iter().flat_map(|&grey| [grey; 3]).collect(),
        ColorType::GrayscaleAlpha => samples.as_chunks().0.iter().flat_map(|&[grey, _]| [grey; 3]).collect(),
        ColorType::Indexed => bail!("the palette is missing"),
    };
    Ok(Picture { width: frame.width as usize, height: frame.height as usize, pixels })
}

#[cfg(test)]
mod tests {
    use png::BitDepth;

    use super::*;

    fn encoded(width: u32, height: u32, color: ColorType, depth: BitDepth, samples: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette([10, 20, 30, 40, 50, 60].as_slice());
            encoder.set_trns([0].as_slice());
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(samples).unwrap();
        writer.finish().unwrap();
        bytes
    }

    fn pixels(color: ColorType, depth: BitDepth, samples: &[u8]) -> Vec<u8> {
        decode(&encoded(2, 1, color, depth, samples)).unwrap().pixels
    }

    #[test]
    fn every_kind_becomes_red_green_and_blue() {
        use BitDepth::{Eight, One, Sixteen, Two};
        assert_eq!(pixels(ColorType::Rgb, Eight, &[1, 2, 3, 4, 5, 6]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(pixels(ColorType::Rgba, Eight, &[1, 2, 3, 0, 4, 5, 6, 9]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(pixels(ColorType::Grayscale, Eight, &[7, 8]), [7, 7, 7, 8, 8, 8]);
        assert_eq!(pixels(ColorType::GrayscaleAlpha, Eight, &[7, 0, 8, 9]), [7, 7, 7, 8, 8, 8]);
        assert_eq!(pixels(ColorType::Grayscale, One, &[0b0100_0000]), [0, 0, 0, 255, 255, 255]);
        assert_eq!(pixels(ColorType::Grayscale, Two, &[0b0110_0000]), [85, 85, 85, 170, 170, 170]);
        assert_eq!(pixels(ColorType::Indexed, One, &[0b0100_0000]), [10, 20, 30, 40, 50, 60]);
        assert_eq!(pixels(ColorType::Grayscale, Sixteen, &[7, 255, 8, 0]), [7, 7, 7, 8, 8, 8]);
        assert_eq!(pixels(ColorType::Rgb, Sixteen, &[1, 255, 2, 0, 3, 9, 4, 0, 5, 0, 6, 0]), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_header_that_says_too_much_is_an_error() {
        let mut bytes = encoded(2, 1, ColorType::Grayscale, BitDepth::Eight, &[7, 8]);
        // The width and height of the header, and its checksum.
        bytes[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
        let mut checksum = checksum_of(&bytes[12..29]).to_be_bytes();
        bytes[29..33].swap_with_slice(&mut checksum);
        let error = decode(&bytes).unwrap_err().to_string();
        assert!(error.contains("pixels are more than"), "{error}");
    }

    /// PNG's checksum (ISO 15948, annex D).
    fn checksum_of(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
        })
    }
}
