//! TLS and HTTP/2, against a server on the client's own libraries.
#![cfg(feature = "serve")]

use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::{load, rows, run, workplace};
use crate::support::data_folder;

/// Serves the model `double` by protocol v2 and returns the port.
fn serve(is_tls: bool, is_http2: bool) -> u16 {
    let (sender, port) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap().port()).unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config(is_http2)));
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match is_tls {
                        true => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                speak(TokioIo::new(stream), is_http2).await;
                            }
                        }
                        false => speak(TokioIo::new(stream), is_http2).await,
                    }
                });
            }
        });
    });
    port.recv().unwrap()
}

fn config(is_http2: bool) -> ServerConfig {
    let folder = data_folder().join("tls");
    let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    config
}

async fn speak(stream: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static, is_http2: bool) {
    let service = service_fn(answer);
    let _ = match is_http2 {
        true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await,
        false => http1::Builder::new().serve_connection(stream, service).await,
    };
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let _ = request.into_body().collect().await?;
    let tensor = r#"[{"name":"x","datatype":"FP32","shape":[-1,2]}]"#;
    let answer = match path.as_str() {
        "/v2" => r#"{"name":"secure","version":"2"}"#.to_owned(),
        "/v2/models/double" => format!(r#"{{"name":"double","inputs":{tensor},"outputs":{tensor}}}"#),
        _ => r#"{"outputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}"#.to_owned(),
    };
    Ok(Response::new(Full::new(Bytes::from(answer))))
}

#[test]
fn connections_may_be_secret_and_of_http_2() {
    let certificate = data_folder().join("tls/certificate.pem").display().to_string();
    for (is_tls, is_http2) in [(true, false), (true, true), (false, true)] {
        let scheme = if is_tls { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", serve(is_tls, is_http2));
        let mut arguments = vec!["--model", "double", "--rate", "100/s", "--queries", "30", "--connections", "4"];
        if is_tls {
            arguments.extend(["--certificates", &certificate]);
        }
        if is_http2 {
            arguments.push("--http2");
        }
        let row = load(&url, &arguments);
        assert_eq!((row.status.to_string().as_str(), row.unanswered), ("ok", 0), "{url} {is_http2}: {row:?}");
        let protocol = if is_http2 { "v2 json, HTTP/2" } else { "v2 json" };
        assert_eq!((row.protocol.as_deref(), row.server.as_deref()), (Some(protocol), Some("secure 2")));
    }
}

#[test]
fn a_certificate_that_does_not_fit_is_a_counted_kind_of_error() {
    let certificate = data_folder().join("tls/certificate.pem").display().to_string();
    let port = serve(true, false);
    let terms = ["--model", "double", "--rate", "100/s"];
    // No trusted authority signed the certificate, and it is for another name.
    for (url, own) in [(format!("https://localhost:{port}"), false), (format!("https://127.0.0.1:{port}"), true)] {
        let certificates: &[&str] = if own { &["--certificates", &certificate] } else { &[] };
        let finished = run(&workplace(), &url, &[&terms[..], certificates].concat());
        if !own && finished.stderr.contains("no trusted certificates") {
            continue;
        }
        let row = rows(&finished.with_code(3)).remove(0);
        assert_eq!(
            (row.status.to_string().as_str(), row.errors.as_deref()),
            ("unavailable", Some("certificate × 1")),
            "{url}"
        );
    }
}
