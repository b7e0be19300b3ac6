//! The frames exchanged with an external worker: a header in JSON, and tensors as they lie in memory.
//!
//! A frame is the four bytes `IFB1`, the length of the header (u32), the length of the tensors' bytes (u64), the
//! header, and the bytes of the tensors one after the other; numbers are little-endian. The header's `tensors` has the
//! `name`, `dtype` and `shape` of each tensor.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::ElementType;
use crate::fixture::HostTensor;

const MAGIC: [u8; 4] = *b"IFB1";
/// The longest valid header. It is large because the header of a profile lists all operators of all calls.
const MOST_HEADER_BYTES: u32 = 1 << 30;
/// Characters of an unreadable header that a message shows.
const SHOWN_CHARACTERS: usize = 120;

/// Tensors with their names, in the order of a frame.
pub(super) type NamedTensors = Vec<(String, HostTensor)>;

#[derive(Serialize, Deserialize)]
struct TensorHeader {
    name: String,
    dtype: String,
    shape: Vec<usize>,
}

/// Why no frame was read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoFrame {
    /// The input has ended, or cannot be read.
    #[error("{0}")]
    Ended(io::Error),
    /// The bytes are not a valid frame.
    #[error("{0}")]
    Other(String),
}

impl From<io::Error> for NoFrame {
    fn from(error: io::Error) -> Self {
        NoFrame::Ended(error)
    }
}

/// Writes a frame. `header` is a JSON object.
pub(super) fn write_frame(output: &mut impl Write, header: &Value, tensors: &[(String, HostTensor)]) -> io::Result<()> {
    let of_tensor = |(name, tensor): &(String, HostTensor)| TensorHeader {
        name: name.clone(),
        dtype: tensor.element_type().to_string(),
        shape: tensor.shape.clone(),
    };
    let mut header = header.clone();
    header["tensors"] = serde_json::to_value(tensors.iter().map(of_tensor).collect::<Vec<_>>())?;
    let header = serde_json::to_vec(&header)?;
    let payload: Vec<Vec<u8>> = tensors.iter().map(|(_, tensor)| tensor.data.to_bytes()).collect();
    let bytes: usize = payload.iter().map(Vec::len).sum();
    let begin = [&MAGIC[..], &(header.len() as u32).to_le_bytes(), &(bytes as u64).to_le_bytes(), &header].concat();
    output.write_all(&begin)?;
    for part in &payload {
        output.write_all(part)?;
    }
    output.flush()
}

/// Reads a frame: its header and its tensors. Tensors of f16 and bf16 become f32.
pub(super) fn read_frame(input: &mut impl Read) -> Result<(Value, NamedTensors), NoFrame> {
    let mut begin = [0; 16];
    let mut read = 0;
    while read < begin.len() {
        match input.read(&mut begin[read..]) {
            Ok(0) => return Err(NoFrame::Ended(io::ErrorKind::UnexpectedEof.into())),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        // Without this check, a line of text shorter than 16 bytes would block the reader.
        if begin[..read.min(4)] != MAGIC[..read.min(4)] {
            let text = String::from_utf8_lossy(&begin[..read]).into_owned();
            return Err(NoFrame::Other(format!("{text:?}, which is not a frame")));
        }
    }
    let [_, _, _, _, a, b, c, d, bytes @ ..] = begin;
    let (length, bytes) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(bytes));
    if length > MOST_HEADER_BYTES {
        return Err(NoFrame::Other(format!("a frame whose header has {length} bytes")));
    }
    let whole = |input: &mut dyn Read, length: u64| -> Result<Vec<u8>, NoFrame> {
        let mut whole = Vec::new();
        // Memory is allocated for the bytes that arrive, not for the length that was announced.
        input.take(length).read_to_end(&mut whole)?;
        if (whole.len() as u64) < length {
            return Err(NoFrame::Ended(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(whole)
    };
    let header = whole(input, length.into())?;
    let payload = whole(input, bytes)?;
    let other = |what: String| {
        let shown: String = String::from_utf8_lossy(&header).chars().take(SHOWN_CHARACTERS).collect();
        NoFrame::Other(format!("a frame with the header {shown:?}: {what}"))
    };
    let mut fields: Value = serde_json::from_slice(&header).map_err(|error| other(error.to_string()))?;
    let described = fields.as_object_mut().and_then(|fields| fields.remove("tensors"));
    let described: Vec<TensorHeader> =
        described.map_or(Ok(Vec::new()), serde_json::from_value).map_err(|error| other(error.to_string()))?;
    let mut rest = payload.as_slice();
    let mut tensors = Vec::new();
    for TensorHeader { name, dtype, shape } in described {
        let unknown = || other(format!("{name} has the type {dtype:?}; there are {}", ElementType::NAMES));
        let bytes = dtype.parse().map(ElementType::bytes).map_err(|_| unknown())?;
        let size = shape.iter().try_fold(bytes, |bytes: usize, &dimension| bytes.checked_mul(dimension));
        let own = size.filter(|size| *size <= rest.len());
        let own =
            own.ok_or_else(|| other(format!("{name} does not fit into the {} bytes that are left", rest.len())))?;
        let (own, after) = rest.split_at(own);
        rest = after;
        let tensor = HostTensor::from_bytes(&dtype, shape, own).map_err(|error| other(format!("{name}: {error:#}")))?;
        tensors.push((name, tensor));
    }
    Ok((fields, tensors))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(header: &Value, tensors: &[(String, HostTensor)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, header, tensors).unwrap();
        bytes
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let picture = HostTensor { shape: vec![2, 1], data: vec![1.5_f32, -0.0].into() };
        let tokens = HostTensor { shape: vec![0, 3], data: Vec::<i64>::new().into() };
        let is_kept = HostTensor { shape: vec![3], data: vec![true, false, true].into() };
        let header = serde_json::json!({ "verb": "bind", "binding": 3 });
        let named: NamedTensors = vec![("x".into(), picture), ("ids".into(), tokens), ("kept".into(), is_kept)];
        let bytes = frame(&header, &named);
        let (read, tensors) = read_frame(&mut bytes.as_slice()).unwrap();
        assert_eq!(read, header);
        assert_eq!(tensors, named);
    }

    #[test]
    fn what_is_no_frame_is_shown() {
        let said = |bytes: &[u8]| read_frame(&mut &*bytes).unwrap_err().to_string();
        assert_eq!(said(b"Loading the model\n"), "\"Loading the mode\", which is not a frame");
        assert_eq!(said(b"ok\n"), "\"ok\\n\", which is not a frame");
        for cut in ["", "IFB1", "IFB1\0"] {
            assert!(matches!(read_frame(&mut cut.as_bytes()), Err(NoFrame::Ended(_))), "{cut:?}");
        }
        for (dtype, why) in [("f32", "x does not fit into the 0 bytes that are left"), ("float32", "u64, bool")] {
            let header = serde_json::json!({ "tensors": [{ "name": "x", "dtype": dtype, "shape": [usize::MAX, 2] }] });
            let text = serde_json::to_vec(&header).unwrap();
            let bytes = [&MAGIC[..], &(text.len() as u32).to_le_bytes(), &0_u64.to_le_bytes(), &text].concat();
            assert!(said(&bytes).ends_with(why), "{}", said(&bytes));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, is_begun: bool) {
            let begun = if is_begun { [&MAGIC[..], &bytes].concat() } else { bytes };
            let _ = read_frame(&mut begun.as_slice());
        }

        #[test]
        fn a_frame_that_is_cut_has_ended(cut in 0_usize..60) {
            let tensor = HostTensor { shape: vec![2], data: vec![1_i32, 2].into() };
            let bytes = frame(&serde_json::json!({ "n": 1 }), &[("x".into(), tensor)]);
            prop_assume!(cut < bytes.len());
            prop_assert!(matches!(read_frame(&mut &bytes[..cut]), Err(NoFrame::Ended(_))));
        }
    }
}
