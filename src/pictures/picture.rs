//! A decoded picture and the limit of its size.

use anyhow::{Result, bail};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pillow_refuses_is_refused() {
        assert_eq!(MAX_PIXELS, 178_956_970);
        assert!(check_size(65_500, 2_732).is_ok());
        assert!(check_size(65_500, 2_733).is_err());
        assert!(check_size(usize::MAX, 2).is_err());
    }
}
