//! Shapes of convolutions and poolings, which slide a window over the spatial dimensions.

use super::node::Node;
use anyhow::{Context, Result, bail, ensure};

/// A window's sizes along each spatial dimension.
pub(super) struct Window<'a> {
    pub kernel: &'a [usize],
    /// Whether a last window that is not whole counts.
    pub is_ceiled: bool,
}

impl Window<'_> {
    /// How many windows there are along each dimension: `⌊(n + pads − d·(k − 1) − 1) / s⌋ + 1`.
    ///
    /// # Errors
    /// Attributes that do not fit the rank, or a window that is larger than what it slides over.
    pub fn count(&self, node: &Node<'_>, spatial: &[usize]) -> Result<Vec<usize>> {
        let rank = spatial.len();
        let attribute = |name: &str, otherwise: i64, length: usize| -> Result<Vec<usize>> {
            let given = node.ints(name).filter(|ints| !ints.is_empty());
            let numbers = given.map_or(vec![otherwise; length], <[i64]>::to_vec);
            ensure!(numbers.len() == length, "{} numbers of {name} instead of {length}", numbers.len());
            node.sizes(&numbers)
        };
        ensure!(self.kernel.len() == rank, "a window of {} dimensions over {rank}", self.kernel.len());
        let (strides, dilations) = (attribute("strides", 1, rank)?, attribute("dilations", 1, rank)?);
        let pads = attribute("pads", 0, 2 * rank)?;
        ensure!(!strides.contains(&0), "a stride of 0");
        let same = match node.text("auto_pad") {
            Some(b"SAME_UPPER" | b"SAME_LOWER") => true,
            Some(b"NOTSET" | b"VALID" | b"") | None => false,
            Some(_) => bail!("an unknown auto_pad"),
        };
        let along = |axis: usize| {
            let (size, stride) = (spatial[axis], strides[axis]);
            if same {
                return Ok(size.div_ceil(stride));
            }
            let padded = size.saturating_add(pads[axis]).saturating_add(pads[rank + axis]);
            let reach = dilations[axis].saturating_mul(self.kernel[axis].saturating_sub(1)).saturating_add(1);
            let free = padded.checked_sub(reach).context("a window larger than its input")?;
            let mut count = if self.is_ceiled { free.div_ceil(stride) } else { free / stride } + 1;
            // A window that would begin in the padding at the end does not count.
            if self.is_ceiled && (count - 1).saturating_mul(stride) >= size.saturating_add(pads[axis]) {
                count -= 1;
            }
            Ok(count)
        };
        (0..rank).map(along).collect()
    }
}
