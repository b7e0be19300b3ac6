//! The pixels of an SVG file. Words are set in the package's own font, so that they look the same everywhere.

use std::sync::Arc;

use anyhow::{Context, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb::Database};

const FONTS: [&[u8]; 2] = [include_bytes!("fonts/DejaVuSans.ttf"), include_bytes!("fonts/DejaVuSans-Bold.ttf")];

/// Pixels per pixel of the SVG file: sharp in print and on a large screen.
const SHARPNESS: f32 = 2.0;

/// The SVG file as a PNG file, twice as large.
///
/// # Errors
/// The text is not SVG, or the picture is too large.
pub fn png(svg: &str) -> Result<Vec<u8>> {
    let mut fonts = Database::new();
    for font in FONTS {
        fonts.load_font_data(font.to_vec());
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options)?;
    let size = tree.size();
    let pixels = |length: f32| (length * SHARPNESS).ceil() as u32;
    let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height())).with_context(|| {
        format!("{} × {} is too large for a PNG file; choose cases with --model", size.width(), size.height())
    })?;
    resvg::render(&tree, Transform::from_scale(SHARPNESS, SHARPNESS), &mut pixmap.as_mut());
    Ok(pixmap.encode_png()?)
}
