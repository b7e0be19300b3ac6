//! What is sent by external workers, by clients of the endpoint and by servers under load.

use std::fs;
use std::sync::LazyLock;

use inferbench::backend::{LoadRequest, fuzzed as workers};
use inferbench::definition::{Dtype, Model, Phase, Sizes};
use inferbench::fixture::{Artifacts, HostTensor, seeded_input};
use inferbench::remote::{ProtocolName, fuzzed as servers};
use inferbench::service::fuzzed::Endpoint;

use crate::{checkout, files, folder, results};

/// Separates the answers of a server.
const BETWEEN: &[u8] = b"\n--next--\n";

pub fn frames(bytes: &[u8]) {
    workers::frames(bytes);
}

pub fn page(bytes: &[u8]) {
    workers::page(bytes);
}

/// The first byte chooses the model: a classifier, or a decoder that makes tokens.
pub fn worker(bytes: &[u8]) {
    static MODELS: LazyLock<[Model; 2]> = LazyLock::new(|| ["two_inputs", "decoder"].map(files::model_of));
    let Some((first, bytes)) = bytes.split_first() else { return };
    let model = &MODELS[usize::from(first % 2)];
    let phase = if first % 2 == 0 { Phase::Forward } else { Phase::Decode };
    let sizes = Sizes { batch: 1, sequence: Some(4) };
    let inputs: Result<Vec<HostTensor>, _> =
        model.inputs.iter().map(|input| seeded_input(input, &[0], sizes)).collect();
    let artifacts = Artifacts::default();
    let request = LoadRequest {
        model,
        artifacts: &artifacts,
        phase,
        sizes,
        device: "cpu",
        dtype: Dtype::F32,
        threads: 1,
        instances: 1,
        callers: 1,
    };
    let _ = workers::worker(bytes, &request, &inputs.expect("inputs"));
}

/// A frame with one tensor of the header's bytes, or with none.
fn frame(header: &str, tensor: &[u8]) -> Vec<u8> {
    let lengths = [&(header.len() as u32).to_le_bytes()[..], &(tensor.len() as u64).to_le_bytes()].concat();
    [&b"IFB1"[..], &lengths, header.as_bytes(), tensor].concat()
}

/// The answers of a worker to everything that is asked.
pub fn seeds_of_worker() -> Vec<Vec<u8>> {
    let times = |calls: usize| {
        let header = format!(r#"{{"tensors":[{{"name":"times","dtype":"i64","shape":[{calls}]}}]}}"#);
        frame(&header, &1000_i64.to_le_bytes().repeat(calls))
    };
    let describe =
        r#"{"protocol":1,"name":"n","version":"1","devices":[{"device":"cpu","detail":"d"}],"dtypes":["f32"]}"#;
    let load = r#"{"device":"cpu","threads":1,"compile_ms":1.5,"note":"n","files":["a"]}"#;
    let output = |name: &str| {
        let header = format!(r#"{{"tensors":[{{"name":"{name}","dtype":"f32","shape":[1,2]}}]}}"#);
        frame(&header, &[0; 8])
    };
    let called = r#"{"to_device_ns":1,"compute_ns":2,"to_host_ns":3}"#;
    let profile = r#"{"calls":[{"operators":[{"node":"a","operator":"MatMul","start_ns":0,"duration_ns":5}]}]}"#;
    let clocks = frame(r#"{"ns":5}"#, &[]).repeat(5);
    let all = |first: u8, output: Vec<u8>, lead: usize| {
        [
            vec![first],
            frame(describe, &[]),
            frame(load, &[]),
            clocks.clone(),
            frame("{}", &[]),
            times(3),
            times(1),
            times(lead + 3),
            output.clone(),
            frame(called, &[]),
            output,
            frame("{}", &[]),
            frame(profile, &[]),
        ]
        .concat()
    };
    let together = frame(r#"{"together":4}"#, &[]);
    let error = frame(r#"{"error":{"message":"no","status":"unsupported"}}"#, &[]);
    let seeds = [all(0, output("y"), 504), all(1, output("logits"), 500), all(0, output("y"), 0)];
    let cut = |count: usize, last: &[u8]| {
        let start =
            [&[0_u8][..], &frame(describe, &[]), &frame(load, &[]), &clocks.repeat(usize::from(count > 2))].concat();
        [&start[..], last].concat()
    };
    seeds.into_iter().chain([cut(3, &together), cut(1, &error)]).collect()
}

/// The endpoint must answer, and never that it has made a mistake.
pub fn requests(bytes: &[u8]) {
    thread_local! {
        static ENDPOINT: Endpoint = endpoint();
    }
    let answers = ENDPOINT.with(|endpoint| endpoint.answers(bytes)).expect("an answer in time");
    let mistake = b"HTTP/1.1 500 ";
    let has_mistake = answers.windows(mistake.len()).any(|window| window == mistake);
    assert!(!has_mistake, "{}", String::from_utf8_lossy(&answers));
}

/// An endpoint with a packaged model, the suites, and a run that was a job.
fn endpoint() -> Endpoint {
    for name in ["models/zoo/digits", "models/suites"] {
        let target = folder(&format!("endpoint/{name}"));
        for file in fs::read_dir(checkout(name)).expect("the folder").flatten().filter(|file| file.path().is_file()) {
            fs::copy(file.path(), target.join(file.file_name())).expect("a copy");
        }
    }
    let (_, run) = results::run_in("endpoint/target-reports");
    fs::write(run.join("report.html"), "a page").expect("the page");
    let job = concat!(
        r#"{"id":"20260101T000000Z","state":"done","asked":{"models":["digits"]},"submitted":"2026-01-01T00:00:00Z","#,
        r#""finished":"2026-01-01T00:00:01Z","finished_cases":1}"#
    );
    fs::write(folder("endpoint/target/inferbench/service").join("job.json"), job).expect("the job");
    Endpoint::open(folder("endpoint")).expect("an endpoint")
}

pub fn seeds_of_requests() -> Vec<Vec<u8>> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let post = |body: &str| {
        let head =
            "POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\nContent-Length:";
        format!("{head} {}\r\n\r\n{body}", body.len())
    };
    let mut seeds: Vec<String> = [
        "/",
        "/docs",
        "/page/service.js",
        "/api/v1/openapi.json",
        "/api/v1/devices",
        "/api/v1/models?family=cnn&limit=3&offset=1",
        "/api/v1/suites",
        "/api/v1/runs?state=done&model=a,b&max_age=7d",
        "/api/v1/runs/20260101T000000Z",
        "/api/v1/runs/20260101T000000Z/events",
        "/api/v1/runs/20260101T000000Z/report",
        "/api/v1/records?model=m&status=ok&max_age=90s&limit=5",
        "/api/v1/compare?base=a&candidate=b",
        "/api/v1/benchmark/digits?device=cpu&iterations=100&warmup=1&dtype=f32&batch_size=2&max_age=1h",
        "/api/v1/benchmark/digits.onnx?backend=ort&phase=forward&variant=original&threads=1&sequence_length=1",
        "/api/v1/benchmark/%64igit%20",
    ]
    .map(get)
    .into();
    seeds.push(post(r#"{"models":["digits"],"devices":["cpu"],"batch_sizes":[1,2],"iterations":5}"#));
    seeds.push(post(r#"{"suite":"quick","variants":["all"],"dtypes":["f16"],"phases":["decode"],"sequence_lengths":[8],"warmup":0}"#));
    seeds.push(
        get("/api/v1/suites").replace("\r\n\r\n", "\r\nOrigin: http://localhost\r\nSec-Fetch-Site: none\r\n\r\n"),
    );
    seeds.push(get("/api/v1/records").replace("\r\n\r\n", "\r\nAccept: text/csv;q=1, */*\r\n\r\n"));
    seeds.push(get("/x").replace("GET", "DELETE") + &get("/"));
    seeds.push("POST /api/v1/runs HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".into());
    seeds.into_iter().map(String::into_bytes).collect()
}

/// The first byte chooses the protocol and its form, and the others are the server's answers.
pub fn answers(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let protocol = match first % 8 {
        0 | 1 => ProtocolName::V2,
        2 => ProtocolName::Chat,
        3 => ProtocolName::Completions,
        _ => ProtocolName::Embeddings,
    };
    let mut all = Vec::new();
    while let Some(place) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        all.push(rest[..place].to_vec());
        rest = &rest[place + BETWEEN.len()..];
    }
    all.push(rest.to_vec());
    servers::answers(protocol, first % 8 == 1, first & 8 != 0, all.into_iter());
}

pub fn seeds_of_answers() -> Vec<Vec<u8>> {
    let ok = |headers: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let of = |first: u8, answers: &[Vec<u8>]| [&[first][..], &answers.join(BETWEEN)].concat();
    let server = ok("", br#"{"name":"triton","version":"2"}"#);
    let listed = ok("", br#"[{"name":"m"}]"#);
    let metadata = |output: &str| {
        let text = format!(
            r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[-1,2]}},{{"name":"t","datatype":"BYTES","shape":[1]}}],"outputs":[{{"name":"{output}","datatype":"FP32","shape":[-1,2]}}]}}"#
        );
        ok("", text.as_bytes())
    };
    let numbers = |output: &str| {
        let text = format!(r#"{{"outputs":[{{"name":"{output}","datatype":"FP32","shape":[1,2],"data":[1,[2.0]]}}]}}"#);
        ok("", text.as_bytes())
    };
    let head = br#"{"outputs":[{"name":"z","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#;
    let body = [&head[..], &[0; 8]].concat();
    let binary = ok(&format!("Inference-Header-Content-Length: {}\r\n", head.len()), &body);
    let texts = br#"{"outputs":[{"name":"z","datatype":"BYTES","shape":[1],"data":["a"]}]}"#;
    let models = ok("", br#"{"data":[{"id":"m","owned_by":"vllm"}]}"#);
    let version = ok("", br#"{"version":"1"}"#);
    let events = concat!(
        ": a comment\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"
    );
    let chunked =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n0\r\n\r\n", events.len());
    let chat = br#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let embeddings = ok("", br#"{"data":[{"embedding":[0.1,0.2]}],"usage":{"prompt_tokens":5}}"#);
    let busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nConnection: close\r\n\r\nlater".to_vec();
    let start = |output: &str| vec![server.clone(), listed.clone(), metadata(output)];
    let with = |mut start: Vec<Vec<u8>>, answer: Vec<u8>| {
        start.extend([answer.clone(), answer]);
        start
    };
    let of_llm = || vec![models.clone(), version.clone()];
    vec![
        of(0, &with(start("y"), numbers("y"))),
        of(0, &with(start("z"), numbers("z"))),
        of(1, &with(start("z"), binary)),
        of(0, &with(start("z"), ok("", texts))),
        of(2, &with(of_llm(), ok("", events.as_bytes()))),
        of(3, &with(of_llm(), chunked.into_bytes())),
        of(10, &with(of_llm(), ok("", chat))),
        of(4, &with(of_llm(), embeddings)),
        of(2, &with(of_llm(), busy)),
    ]
}
