//! From a file's bytes to red, green and blue, as Pillow 13's `Image.open(…).convert("RGB")`.

use std::io::Cursor;

use anyhow::{Context, Result, bail, ensure};
use png::{ColorType, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A picture with more pixels is an error before memory is allocated, as in Pillow: twice its `MAX_IMAGE_PIXELS`.
pub const MAX_PIXELS: usize = 2 * (1024 * 1024 * 1024 / 4 / 3);

/// Red, green and blue of 8 bits each, `[height, width, 3]`.
#[derive(Debug, PartialEq)]
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<u8>,
}

/// # Errors
/// There are more pixels than [`MAX_PIXELS`].
pub fn check_size(width: usize, height: usize) -> Result<()> {
    match width.checked_mul(height) {
        Some(pixels) if pixels <= MAX_PIXELS => Ok(()),
        _ => bail!("{width} x {height} pixels are more than {MAX_PIXELS}"),
    }
}

/// # Errors
/// The bytes are not a JPEG or PNG, are not whole, or claim more pixels than [`MAX_PIXELS`].
pub fn decode(bytes: &[u8]) -> Result<Picture> {
    match bytes {
        [] => bail!("the file is empty"),
        [0xff, 0xd8, 0xff, ..] => decode_jpeg(bytes).context("not a whole JPEG"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => decode_png(bytes).context("not a whole PNG"),
        _ => bail!("neither a JPEG nor a PNG"),
    }
}

/// Width and height of a JPEG or PNG, by its header.
pub fn size(bytes: &[u8]) -> Result<[usize; 2]> {
    if bytes.starts_with(&[0x89, b'P']) {
        let reader = png::Decoder::new(Cursor::new(bytes)).read_info()?;
        return Ok([reader.info().width as usize, reader.info().height as usize]);
    }
    Ok(jpeg_decoder(bytes)?.1)
}

/// A mask: a class per pixel.
#[derive(Debug, PartialEq)]
pub struct Mask {
    pub width: usize,
    pub height: usize,
    pub classes: Vec<u16>,
}

/// The numbers of a PNG's pixels as they are in the file: levels of grey, or places in the palette.
///
/// # Errors
/// It is not a whole PNG, has more than `MAX_PIXELS` pixels, or has colours or transparency.
pub fn decode_mask(bytes: &[u8]) -> Result<Mask> {
    let (samples, frame) = png_samples(bytes, Transformations::IDENTITY).context("not a whole PNG")?;
    let (width, height) = (frame.width as usize, frame.height as usize);
    ensure!(
        matches!(frame.color_type, ColorType::Grayscale | ColorType::Indexed),
        "a mask has one number per pixel, the class, as grey or in a palette; this one has colours or transparency"
    );
    let bits = frame.bit_depth as usize;
    let row = |row: &[u8]| -> Vec<u16> {
        let number = |place: usize| match bits {
            16 => u16::from_be_bytes([row[2 * place], row[2 * place + 1]]),
            _ => {
                // The first pixel has the highest bits.
                let shift = 8 - bits - place * bits % 8;
                u16::from(row[place * bits / 8] >> shift) & ((1 << bits) - 1)
            }
        };
        (0..width).map(number).collect()
    };
    let classes = samples.chunks_exact(frame.line_size).take(height).flat_map(row).collect();
    Ok(Mask { width, height, classes })
}

/// Converts grey and CMYK to red, green and blue. CMYK is inverted in the file, as Adobe writes it and Pillow reads it.
/// A form that the decoder lacks, such as arithmetic coding, is an error, too.
fn decode_jpeg(bytes: &[u8]) -> Result<Picture> {
    let (mut decoder, [width, height]) = jpeg_decoder(bytes)?;
    check_size(width, height)?;
    let mut pixels = vec![0; width * height * 3];
    decoder.decode_into(&mut pixels)?;
    // The decoder fills in missing rows at the end, even if it is strict.
    ensure!(has_end(bytes), "its end is missing");
    Ok(Picture { width, height, pixels })
}

/// Whether a JPEG has an end marker of its own, and not only that of a picture inside it, such as a thumbnail.
fn has_end(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[first, second]) = bytes.get(at..at + 2) {
        at += match (first, second) {
            (0xff, 0xd9) => return true,
            // Segments give their length. Samples have none, and neither have the markers between them.
            (0xff, 0x02..=0xcf | 0xda..=0xfe) => bytes
                .get(at + 2..at + 4)
                .map_or(2, |length| 2 + usize::from(u16::from_be_bytes([length[0], length[1]]))),
            _ => 1,
        };
    }
    false
}

type Jpeg<'a> = JpegDecoder<ZCursor<&'a [u8]>>;

/// A decoder that has read the header, with width and height.
fn jpeg_decoder(bytes: &[u8]) -> Result<(Jpeg<'_>, [usize; 2])> {
    // The largest side that the format can say.
    let side = usize::from(u16::MAX);
    // Strict: a truncated file is an error, as for Pillow, and not a grey area.
    let options = DecoderOptions::default().set_strict_mode(true).set_max_width(side).set_max_height(side);
    let options = options.jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers()?;
    let (width, height) = decoder.dimensions().context("it has no size")?;
    Ok((decoder, [width, height]))
}

/// A palette is looked up, grey is repeated, transparency is dropped. The upper 8 of 16 bits are taken, as in Pillow
/// for colours; Pillow cuts grey of 16 bits off at 255 instead, which leaves a white picture, and is not copied.
fn decode_png(bytes: &[u8]) -> Result<Picture> {
    let (samples, frame) = png_samples(bytes, Transformations::normalize_to_color8())?;
    let pixels = match frame.color_type {
        ColorType::Rgb => samples,
        ColorType::Rgba => samples.as_chunks().0.iter().flat_map(|&[red, green, blue, _]| [red, green, blue]).collect(),
        ColorType::Grayscale => samples.iter().flat_map(|&grey| [grey; 3]).collect(),
        ColorType::GrayscaleAlpha => samples.as_chunks().0.iter().flat_map(|&[grey, _]| [grey; 3]).collect(),
        ColorType::Indexed => bail!("the palette is missing"),
    };
    Ok(Picture { width: frame.width as usize, height: frame.height as usize, pixels })
}

/// The samples of a PNG's pixels, row by row, and their form.
fn png_samples(bytes: &[u8], transformations: Transformations) -> Result<(Vec<u8>, png::OutputInfo)> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(transformations);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info()?;
    check_size(reader.info().width as usize, reader.info().height as usize)?;
    let mut samples = vec![0; reader.output_buffer_size().context("it is too large")?];
    let frame = reader.next_frame(&mut samples)?;
    samples.truncate(frame.buffer_size());
    Ok((samples, frame))
}

#[cfg(test)]
mod tests {
    use png::BitDepth;

    use super::*;

    #[test]
    fn other_files_are_no_pictures() {
        assert_eq!(decode(b"").unwrap_err().to_string(), "the file is empty");
        assert_eq!(decode(b"GIF89a").unwrap_err().to_string(), "neither a JPEG nor a PNG");
        assert!(decode(b"\xff\xd8\xff\xe0").unwrap_err().to_string().contains("not a whole JPEG"));
        assert!(decode(b"\x89PNG\r\n\x1a\n").unwrap_err().to_string().contains("not a whole PNG"));
    }

    const HEADER: &[u8] =
        b"\xff\xd8\xff\xc0\x00\x0b\x08\xff\xff\xff\xff\x01\x01\x11\x00\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00";

    #[test]
    fn a_jpeg_header_that_says_too_much_is_an_error() {
        assert_eq!(decode_jpeg(HEADER).unwrap_err().to_string(), "65535 x 65535 pixels are more than 178956970");
        assert_eq!(size(HEADER).unwrap(), [65535, 65535]);
    }

    #[test]
    fn a_jpeg_without_its_end_is_an_error() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pictures/waves/grey.jpg");
        let bytes = std::fs::read(path).unwrap();
        assert!(decode_jpeg(&bytes).is_ok());
        assert_eq!(decode_jpeg(&bytes[..bytes.len() - 1]).unwrap_err().to_string(), "its end is missing");
        // The end of a thumbnail is not the end of the picture.
        let with_thumbnail = [&bytes[..2], b"\xff\xe1\x00\x06ab\xff\xd9", &bytes[2..]].concat();
        assert!(decode_jpeg(&with_thumbnail).is_ok());
        assert!(decode_jpeg(&with_thumbnail[..with_thumbnail.len() - 1]).is_err());
    }

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
        decode_png(&encoded(2, 1, color, depth, samples)).unwrap().pixels
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
    fn a_mask_has_the_numbers_of_the_file() {
        use BitDepth::{Eight, One, Sixteen, Two};
        let classes =
            |color, depth, samples: &[u8]| decode_mask(&encoded(2, 1, color, depth, samples)).unwrap().classes;
        assert_eq!(classes(ColorType::Grayscale, Eight, &[7, 255]), [7, 255]);
        assert_eq!(classes(ColorType::Grayscale, Two, &[0b0110_0000]), [1, 2]);
        assert_eq!(classes(ColorType::Grayscale, Sixteen, &[1, 0, 0, 9]), [256, 9]);
        assert_eq!(classes(ColorType::Indexed, One, &[0b0100_0000]), [0, 1]);
        let error = decode_mask(&encoded(2, 1, ColorType::Rgb, Eight, &[0; 6])).unwrap_err().to_string();
        assert!(error.ends_with("this one has colours or transparency"), "{error}");
        assert_eq!(size(&encoded(2, 1, ColorType::Grayscale, Eight, &[7, 8])).unwrap(), [2, 1]);
    }

    #[test]
    fn a_png_header_that_says_too_much_is_an_error() {
        let mut bytes = encoded(2, 1, ColorType::Grayscale, BitDepth::Eight, &[7, 8]);
        // The width and height of the header, and its checksum.
        bytes[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
        let mut checksum = checksum_of(&bytes[12..29]).to_be_bytes();
        bytes[29..33].swap_with_slice(&mut checksum);
        let error = decode_png(&bytes).unwrap_err().to_string();
        assert!(error.contains("pixels are more than"), "{error}");
    }

    /// PNG's checksum (ISO 15948, annex D).
    fn checksum_of(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
        })
    }

    #[test]
    fn what_pillow_refuses_is_refused() {
        assert_eq!(MAX_PIXELS, 178_956_970);
        assert!(check_size(65_500, 2_732).is_ok());
        assert!(check_size(65_500, 2_733).is_err());
        assert!(check_size(usize::MAX, 2).is_err());
    }
}
