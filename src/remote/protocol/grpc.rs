//! The Open Inference Protocol v2 over gRPC. A request and its answer are each a message in a frame. The status is in the
//! trailers.

use anyhow::Result;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue, TE};
use prost::Message;

use self::messages::{
    InferRequest, InferResponse, ModelMetadataRequest, ModelMetadataResponse, RepositoryIndexResponse,
    ServerMetadataResponse, ServerReadyResponse, Tensor,
};
use super::tensors::{BYTES, Numbers, Right};
use super::v2::{Found, Input, Metadata, Output, TensorMetadata, V2, only_model};
use super::{AnswerReader, Described, Description, Protocol, Turn, Wishes};
use crate::definition::Model;
use crate::remote::connection::{Call, Connection, Seen};
use crate::remote::fault::{Fault, Kind};
use crate::remote::grpc_status;
use crate::remote::target::Target;

/// The messages of `inference.GRPCInferenceService`, which `build.rs` generates from `inference.proto`.
mod messages {
    include!(concat!(env!("OUT_DIR"), "/inference.rs"));
}

/// The bytes before a message: a flag for compression, and the length.
const PREFIX: usize = 5;

/// A model behind the protocol.
struct Grpc {
    model: String,
    v2: V2,
}

/// Asks the server about itself and the model, as over HTTP.
///
/// # Errors
/// The user's flags are wrong, or the server has a [`Fault`].
pub fn describe(
    connection: &mut Connection,
    target: &Target,
    wishes: &Wishes,
    right: impl FnOnce(&Model) -> Result<Option<Right>>,
) -> Result<Described> {
    // Tensors are always sent as bytes: half-precision floats have no other form.
    let wishes = Wishes { is_binary: true, ..wishes.clone() };
    let path = |method: &str| format!("{}/inference.GRPCInferenceService/{method}", target.path);
    let server: ServerMetadataResponse = told(connection, path("ServerMetadata"), &())?.unwrap_or_default();
    if let Some(ServerReadyResponse { ready: false }) = told(connection, path("ServerReady"), &())? {
        return Err(Fault::new(Kind::Busy, "the server says that it is not ready").into());
    }
    let name = match &wishes.model {
        Some(name) => name.clone(),
        None => {
            let names = |it: RepositoryIndexResponse| it.models.into_iter().map(|model| model.name).collect();
            only_model(told(connection, path("RepositoryIndex"), &())?.map(names))?
        }
    };
    let asked = ModelMetadataRequest { name: name.clone() };
    let metadata: ModelMetadataResponse = asked_of(connection, path("ModelMetadata"), &asked)?;
    let described = |tensors: Vec<Tensor>| {
        let tensor = |Tensor { name, datatype, shape, .. }| TensorMetadata { name, datatype, shape };
        tensors.into_iter().map(tensor).collect()
    };
    let metadata = Metadata { inputs: described(metadata.inputs), outputs: described(metadata.outputs) };
    let server = [server.name, server.version];
    let found = Found { name: name.clone(), server, path: path("ModelInfer"), metadata };
    found.described(&wishes, right, |v2| Grpc { model: name, v2 })
}

/// The server's answer. Returns `None` if the server does not know the method.
fn told<M: Message + Default>(
    connection: &mut Connection,
    path: String,
    request: &impl Message,
) -> Result<Option<M>, Fault> {
    match asked_of(connection, path, request) {
        Ok(answer) => Ok(Some(answer)),
        Err(fault) if fault.kind == Kind::ServerError => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn asked_of<M: Message + Default>(
    connection: &mut Connection,
    path: String,
    request: &impl Message,
) -> Result<M, Fault> {
    let (mut seen, mut body) = (Seen::default(), Description::default());
    connection.exchange(&call(path, request), &mut seen, &mut body)?;
    grpc_status::check(&seen.headers)?;
    message_of(&body.0)
}

fn call(path: String, request: &impl Message) -> Call {
    let length = request.encoded_len();
    let mut body = Vec::with_capacity(PREFIX + length);
    body.push(0);
    body.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    request.encode_raw(&mut body);
    let headers =
        vec![(CONTENT_TYPE, HeaderValue::from_static("application/grpc")), (TE, HeaderValue::from_static("trailers"))];
    Call { method: Method::POST, path, headers, body: Bytes::from(body) }
}

/// The only message of a body.
fn message_of<M: Message + Default>(body: &[u8]) -> Result<M, Fault> {
    let unfinished = || Fault::new(Kind::Truncated, format!("{} bytes are not a whole message", body.len()));
    let (prefix, message) = body.split_first_chunk::<PREFIX>().ok_or_else(unfinished)?;
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if compressed != 0 {
        return Err(Fault::new(Kind::WrongType, "the answer is compressed, which was not asked for"));
    }
    if message.len() < length {
        return Err(unfinished());
    }
    let no_message =
        |why: String| Fault::new(Kind::WrongType, format!("the answer does not follow the protocol: {why}"));
    if message.len() > length {
        return Err(no_message(format!("{} bytes after the message", message.len() - length)));
    }
    M::decode(message).map_err(|error| no_message(error.to_string()))
}

impl Protocol for Grpc {
    fn name(&self) -> String {
        "v2 grpc".to_owned()
    }

    fn call(&self, turn: Turn) -> Call {
        let tensor = |input: &Input| Tensor {
            name: input.name.clone(),
            datatype: input.datatype.to_owned(),
            shape: input.shape.iter().map(|&size| size as i64).collect(),
            contents: None,
        };
        let request = InferRequest {
            model_name: self.model.clone(),
            id: self.v2.id(turn).to_string(),
            inputs: self.v2.inputs.iter().map(tensor).collect(),
            raw_inputs: self.v2.inputs.iter().map(|input| self.v2.data(input, turn)).collect(),
        };
        call(self.v2.path.clone(), &request)
    }

    fn reader(&self, turn: Turn) -> Box<dyn AnswerReader> {
        self.v2.reader_of(turn, |seen| grpc_status::check(&seen.headers), |body, _| outputs_of(message_of(body)?))
    }
}

/// The outputs of an answer. The values of all outputs are in bytes, or all are in their own fields.
fn outputs_of(answer: InferResponse) -> Result<Vec<Output>, Fault> {
    let InferResponse { outputs, raw_outputs } = answer;
    let is_raw = !raw_outputs.is_empty();
    if is_raw && raw_outputs.len() != outputs.len() {
        let why = format!("{} outputs have the bytes of {}", outputs.len(), raw_outputs.len());
        return Err(Fault::new(Kind::WrongType, why));
    }
    let mut raw_outputs = raw_outputs.iter();
    let output = |Tensor { name, datatype, shape, contents }: Tensor| {
        let sizes = shape.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
        let shape = sizes.map_err(|_| Fault::new(Kind::WrongType, format!("output {name} has the shape {shape:?}")))?;
        match (raw_outputs.next(), contents) {
            (Some(bytes), _) => Output::of_bytes(name, &datatype, shape, bytes),
            (None, Some(contents)) => {
                let numbers = numbers_of(&datatype, contents).ok_or_else(|| {
                    let why = format!("output {name} has values that are not of its type {datatype}");
                    Fault::new(Kind::WrongType, why)
                })?;
                Output::new(name, &datatype, shape, numbers)
            }
            (None, None) => Err(Fault::new(Kind::WrongType, format!("output {name} has no data"))),
        }
    };
    outputs.into_iter().map(output).collect()
}

/// The values in the field of this type. Returns `None` if values are in another field.
fn numbers_of(datatype: &str, contents: messages::Contents) -> Option<Numbers> {
    let messages::Contents { bools, ints, longs, unsigned_ints, unsigned_longs, floats, doubles, texts } = contents;
    let lengths = [bools.len(), ints.len(), longs.len(), unsigned_ints.len(), unsigned_longs.len(), floats.len()];
    let all = lengths.into_iter().chain([doubles.len(), texts.len()]).sum::<usize>();
    let (values, texts): (Vec<f64>, usize) = match datatype {
        "BOOL" => (bools.into_iter().map(|value| f64::from(u8::from(value))).collect(), 0),
        "INT8" | "INT16" | "INT32" => (ints.into_iter().map(f64::from).collect(), 0),
        "INT64" => (longs.into_iter().map(|value| value as f64).collect(), 0),
        "UINT8" | "UINT16" | "UINT32" => (unsigned_ints.into_iter().map(f64::from).collect(), 0),
        "UINT64" => (unsigned_longs.into_iter().map(|value| value as f64).collect(), 0),
        "FP32" => (floats.into_iter().map(f64::from).collect(), 0),
        "FP64" => (doubles, 0),
        BYTES => (Vec::new(), texts.len()),
        _ => return None,
    };
    (values.len() + texts == all).then_some(Numbers { values, texts })
}

#[cfg(test)]
mod tests {
    use super::messages::Contents;
    use super::*;

    #[test]
    fn an_answer_is_one_whole_message_in_a_frame() {
        let message = InferResponse { raw_outputs: vec![vec![1, 2, 3]], ..InferResponse::default() };
        let body = call(String::new(), &message).body;
        let of = |body: &[u8]| message_of::<InferResponse>(body).map_err(|fault| fault.kind);
        assert_eq!(of(&body), Ok(message));
        assert_eq!(of(&[]), Err(Kind::Truncated));
        assert_eq!(of(&body[..body.len() - 1]), Err(Kind::Truncated));
        assert_eq!(of(&[&body[..], &[0]].concat()), Err(Kind::WrongType));
        assert_eq!(of(&[&[1], &body[1..]].concat()), Err(Kind::WrongType));
        assert_eq!(of(&[0, 0, 0, 0, 2, 0xff, 0xff]), Err(Kind::WrongType));
        assert_eq!(of(&[0, 0xff, 0xff, 0xff, 0xff]), Err(Kind::Truncated));
        assert_eq!(of(&[0, 0, 0, 0, 0]), Ok(InferResponse::default()));
    }

    #[test]
    fn values_are_in_bytes_or_in_the_field_of_their_type() {
        let tensor = |datatype: &str, shape: &[i64], contents: Option<Contents>| Tensor {
            name: "y".into(),
            datatype: datatype.into(),
            shape: shape.to_vec(),
            contents,
        };
        let of = |output: Tensor, raw_outputs: &[&[u8]]| {
            let raw_outputs = raw_outputs.iter().map(|bytes| bytes.to_vec()).collect();
            let found = outputs_of(InferResponse { outputs: vec![output], raw_outputs });
            found.map(drop).map_err(|fault| fault.kind)
        };
        let floats = |values: &[f32]| Some(Contents { floats: values.to_vec(), ..Contents::default() });
        assert_eq!(of(tensor("FP32", &[1, 2], floats(&[1.0, 2.0])), &[]), Ok(()));
        assert_eq!(of(tensor("FP32", &[1, 2], None), &[&[0; 8]]), Ok(()));
        assert_eq!(of(tensor("FP16", &[2], None), &[&[0; 4]]), Ok(()));
        assert_eq!(of(tensor(BYTES, &[1], None), &[b"\x01\0\0\0a"]), Ok(()));
        let texts = Some(Contents { texts: vec![b"a".to_vec()], ..Contents::default() });
        assert_eq!(of(tensor(BYTES, &[1], texts), &[]), Ok(()));
        assert_eq!(of(tensor("FP32", &[1, 2], None), &[]), Err(Kind::WrongType));
        assert_eq!(of(tensor("FP32", &[-1, 2], floats(&[1.0, 2.0])), &[]), Err(Kind::WrongType));
        assert_eq!(of(tensor("INT64", &[1, 2], floats(&[1.0, 2.0])), &[]), Err(Kind::WrongType));
        assert_eq!(of(tensor("FP32", &[1, 2], None), &[&[0; 8], &[]]), Err(Kind::WrongType));
        assert_eq!(of(tensor("FP32", &[1, 3], floats(&[1.0, 2.0])), &[]), Err(Kind::WrongShape));
        assert_eq!(of(tensor("FP32", &[1, 2], None), &[&[0; 7]]), Err(Kind::WrongShape));
        assert_eq!(of(tensor("FP32", &[1], floats(&[f32::NAN])), &[]), Err(Kind::NotFinite));
    }
}
