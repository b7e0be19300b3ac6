//! The Open Inference Protocol v2 over gRPC, against a server on the client's HTTP library with message types of its own.
#![cfg(feature = "serve")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;

use super::{load, rows, run, workplace};

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Message)]
struct Contents {
    #[prost(int64, repeated, tag = "3")]
    longs: Vec<i64>,
    #[prost(float, repeated, tag = "6")]
    floats: Vec<f32>,
}

/// A request with the fields of `ModelInferRequest`.
#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<Tensor>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    raw: Vec<Vec<u8>>,
}

/// An answer of this server: a name, a version, and tensors in one of two places.
#[derive(Clone, PartialEq, Message)]
struct Answered {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, repeated, tag = "4")]
    inputs: Vec<Tensor>,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<Tensor>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    raw: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Ready {
    #[prost(bool, tag = "1")]
    ready: bool,
}

/// What the server does wrong after the requests that warm it up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    /// The values are in bytes, as in the request.
    Raw,
    /// A status other than success.
    Status(u16),
    /// The status is in the head, as it is without a body.
    StatusInHead(u16),
    HalfAnswer,
    NoStatus,
    NoGrpc,
    OtherType,
    OtherShape,
    NotFinite,
    NotReady,
    /// The stream of the answer is reset in its middle.
    Resets,
    Hangs,
}

fn serve(wrong: Wrong) -> (String, Arc<AtomicUsize>) {
    let (sender, port) = mpsc::channel();
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap().port()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let requests = requests.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, wrong, requests.clone()));
                    let _ =
                        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    (format!("grpc://127.0.0.1:{}", port.recv().unwrap()), counted)
}

fn trailers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat()
}

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A body that ends with these trailers, or breaks after a while.
fn response(media: &str, body: Vec<u8>, end: Result<Option<HeaderMap>, ()>) -> Answer {
    let end = async {
        if end.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        end.map_err(|()| std::io::Error::other("reset")).transpose()
    };
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).with_trailers(end);
    Response::builder().header("content-type", media).body(body.boxed_unsync()).unwrap()
}

async fn answer(request: Request<Incoming>, wrong: Wrong, requests: Arc<AtomicUsize>) -> Result<Answer, hyper::Error> {
    const GRPC: &str = "application/grpc";
    let method = request.uri().path().strip_prefix("/inference.GRPCInferenceService/").unwrap().to_owned();
    assert_eq!(
        (&request.headers()["content-type"], &request.headers()["te"]),
        (&GRPC.parse().unwrap(), &"trailers".parse().unwrap())
    );
    let body = request.into_body().collect().await?.to_bytes();
    let tensor =
        |datatype: &str| Tensor { name: "x".into(), datatype: datatype.into(), shape: vec![-1, 2], contents: None };
    let ok = |body: Vec<u8>| response(GRPC, body, Ok(Some(trailers(&[("grpc-status", "0")]))));
    match method.as_str() {
        "ServerMetadata" => {
            return Ok(ok(framed(&Answered { name: "grpcs".into(), version: "3.1".into(), ..Answered::default() })));
        }
        "ServerReady" => return Ok(ok(framed(&Ready { ready: wrong != Wrong::NotReady }))),
        "ModelMetadata" => {
            assert_eq!(Asked::decode(&body[5..]).unwrap().model_name, "double");
            let (inputs, outputs) = (vec![tensor("FP32")], vec![tensor("FP32")]);
            return Ok(ok(framed(&Answered { name: "double".into(), inputs, outputs, ..Answered::default() })));
        }
        "ModelInfer" => {}
        _ => return Ok(response(GRPC, Vec::new(), Ok(Some(trailers(&[("grpc-status", "12")]))))),
    }
    let asked = Asked::decode(&body[5..]).unwrap();
    assert_eq!((body[0], asked.model_name.as_str(), asked.inputs[0].name.as_str()), (0, "double", "x"));
    let rows = asked.inputs[0].shape[0];
    assert_eq!((asked.inputs[0].shape.as_slice(), asked.raw[0].len()), (&[rows, 2][..], 8 * rows as usize));
    let values: Vec<f32> = asked.raw[0].chunks(4).map(|it| 2.0 * f32::from_le_bytes(it.try_into().unwrap())).collect();
    let wrong = if requests.fetch_add(1, Ordering::SeqCst) < 3 { Wrong::Nothing } else { wrong };
    let output = |contents: Contents| {
        let contents = Some(contents);
        let shape = vec![rows, if wrong == Wrong::OtherShape { 3 } else { 2 }];
        Answered { outputs: vec![Tensor { shape, contents, ..tensor("FP32") }], ..Answered::default() }
    };
    let right = framed(&output(Contents { floats: values.clone(), ..Contents::default() }));
    Ok(match wrong {
        Wrong::Nothing | Wrong::NotReady | Wrong::OtherShape => ok(right),
        Wrong::Raw => {
            let raw = vec![values.iter().flat_map(|value| value.to_le_bytes()).collect()];
            let outputs = vec![Tensor { shape: vec![rows, 2], ..tensor("FP32") }];
            ok(framed(&Answered { outputs, raw, ..Answered::default() }))
        }
        Wrong::Status(status) => {
            let status = status.to_string();
            let words = [("grpc-status", status.as_str()), ("grpc-message", "too%20much")];
            response(GRPC, Vec::new(), Ok(Some(trailers(&words))))
        }
        Wrong::StatusInHead(status) => {
            let mut answer = response(GRPC, Vec::new(), Ok(None));
            answer.headers_mut().extend(trailers(&[("grpc-status", &status.to_string())]));
            answer
        }
        Wrong::HalfAnswer => ok(right[..right.len() / 2].to_vec()),
        Wrong::NoStatus => response(GRPC, right, Ok(None)),
        Wrong::NoGrpc => response("text/html", b"<html>".to_vec(), Ok(None)),
        Wrong::OtherType => ok(framed(&output(Contents { longs: vec![1, 2], ..Contents::default() }))),
        Wrong::NotFinite => ok(framed(&output(Contents { floats: vec![f32::NAN; 2], ..Contents::default() }))),
        Wrong::Resets => response(GRPC, right, Err(())),
        Wrong::Hangs => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            ok(right)
        }
    })
}

#[test]
fn a_server_of_grpc_is_put_under_load() {
    for (wrong, arguments) in [
        (Wrong::Nothing, &["--rate", "200/s", "--queries", "40"] as &[&str]),
        (Wrong::Raw, &["--rate", "200/s", "--queries", "40"]),
        (Wrong::Nothing, &["--concurrency", "3", "--queries", "30", "--batch-sizes", "4"]),
    ] {
        let (url, requests) = serve(wrong);
        let row = load(&url, &[&["--model", "double"], arguments].concat());
        assert_eq!((row.status.to_string().as_str(), row.unanswered), ("ok", 0), "{row:?}");
        assert_eq!((row.url.as_deref(), row.protocol.as_deref()), (Some(url.as_str()), Some("v2 grpc, HTTP/2")));
        assert_eq!((row.server.as_deref(), row.device.as_str()), (Some("grpcs 3.1"), "grpcs"));
        assert_eq!(row.statuses, Some(format!("grpc 0 × {}", row.queries)));
        assert_eq!(requests.load(Ordering::SeqCst), row.queries + 3);
        assert!(row.sent_bytes.unwrap() > 0 && row.received_bytes.unwrap() > 0, "{row:?}");
    }
    // The flag says the same as the scheme.
    let (url, _) = serve(Wrong::Nothing);
    let flags = ["--protocol", "grpc", "--model", "double", "--rate", "200/s", "--queries", "20"];
    let row = load(&url.replace("grpc://", "http://"), &flags);
    assert_eq!((row.status.to_string().as_str(), row.unanswered), ("ok", 0), "{row:?}");
}

#[test]
fn every_fault_of_grpc_is_counted_by_its_kind() {
    for (wrong, kind) in [
        (Wrong::Status(14), "busy"),
        (Wrong::Status(8), "busy"),
        (Wrong::Status(4), "timeout"),
        (Wrong::Status(3), "client-error"),
        (Wrong::Status(13), "server-error"),
        (Wrong::StatusInHead(14), "busy"),
        (Wrong::HalfAnswer, "truncated"),
        (Wrong::Resets, "truncated"),
        (Wrong::NoStatus, "no-end"),
        (Wrong::NoGrpc, "wrong-type"),
        (Wrong::OtherType, "wrong-type"),
        (Wrong::OtherShape, "wrong-shape"),
        (Wrong::NotFinite, "not-finite"),
        (Wrong::Hangs, "timeout"),
    ] {
        let (url, _) = serve(wrong);
        let terms = ["--rate", "100/s", "--queries", "20", "--patience", "300ms", "--connections", "8"];
        let row = load(&url, &[&["--model", "double"], &terms[..]].concat());
        assert_eq!((row.errors, row.unanswered), (Some(format!("{kind} × 20")), 20), "{wrong:?}: {:?}", row.message);
        if let Wrong::Status(status) = wrong {
            assert_eq!(row.statuses, Some(format!("grpc {status} × 20")), "{wrong:?}");
            assert!(row.message.unwrap().contains(") too much"), "{wrong:?}");
        }
    }
}

#[test]
fn a_server_of_grpc_that_is_not_ready_or_does_not_list_its_models_says_so() {
    let (url, _) = serve(Wrong::NotReady);
    let finished = run(&workplace(), &url, &["--model", "double", "--rate", "10/s"]).with_code(3);
    let row = rows(&finished).remove(0);
    assert_eq!(row.errors.as_deref(), Some("busy × 1"), "{row:?}");
    assert!(row.message.unwrap().contains("not ready"));
    let (url, _) = serve(Wrong::Nothing);
    run(&workplace(), &url, &["--rate", "10/s"]).with_code(2).saying(&["does not list its models", "--model"]);
    let chat = ["--protocol", "chat", "--model", "m", "--rate", "10/s"];
    run(&workplace(), &url, &chat).with_code(2).saying(&["begin it with http://"]);
}
