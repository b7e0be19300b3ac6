//! `inferbench load --url`: the flags about a server that already runs.

use std::path::PathBuf;

use clap::Args;

use crate::selection::values::{duration, rate};

/// The flags about a server. They need `--url` ([`UrlArguments::check`]).
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load on a server that already runs (--url)")]
#[cfg_attr(not(feature = "http-load"), allow(dead_code, reason = "only the client of servers reads the flags"))]
pub struct UrlArguments {
    /// Put the server at this address under load, in place of cases of this program: `http://127.0.0.1:8000`,
    /// `grpc://127.0.0.1:8001`
    #[arg(long, value_name = "ADDRESS")]
    pub url: Option<String>,
    /// What the server speaks: v2 (Open Inference Protocol), grpc (the same over gRPC), chat, completions or embeddings (OpenAI),
    /// template [default: what the address or the server says]
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,
    /// Send and ask for tensors as bytes after a JSON head, as protocol v2 allows
    #[arg(long)]
    binary: bool,
    /// Ask a language model for whole answers and not for streams
    #[arg(long)]
    no_stream: bool,
    /// A `tokenizer.json` that counts the tokens of answers where the server does not (`usage`)
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// A further field of each request: `ignore_eos=true`. May be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    field: Vec<String>,
    /// A TOML file that describes the requests of another protocol
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Compare the outputs with the reference of this packaged model, and the latency with load tests of it here; a case's id chooses the
    /// case [default for the latency: the model of the same name]
    #[arg(long, value_name = "MODEL|CASE")]
    compare_with: Option<String>,
    /// Speak HTTP/2; by prior knowledge if there is no TLS
    #[arg(long)]
    http2: bool,
    /// A PEM file of certificates that are trusted in place of the system's
    #[arg(long, value_name = "FILE")]
    certificates: Option<PathBuf>,
    /// A file with the bearer token in its only line. Without it, the value of INFERBENCH_LOAD_TOKEN is the token
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// A file with further secret headers, one `name: value` per line
    #[arg(long, value_name = "FILE")]
    headers: Option<PathBuf>,
    /// Another machine that may be put under load. May be repeated
    #[arg(long = "allow-host", value_name = "NAME")]
    allow_host: Vec<String>,
    /// Connections at the same time, at most; requests at random times wait for a free one [default: 64, or as many as there are users]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,
    /// How long an answer may take [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    patience: Option<f64>,
    /// How long the whole load test may take [default: 10min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_time: Option<f64>,
    /// How many requests the whole load test may send [default: 1000000]
    #[arg(long, value_name = "N")]
    max_requests: Option<usize>,
    /// The highest rate that may be asked for [default: 50000/s]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,
}

impl UrlArguments {
    /// Refuses flags about a server if none is named.
    pub fn check(&self) -> anyhow::Result<()> {
        let of_servers = [
            ("--protocol", self.protocol.is_some()),
            ("--binary", self.binary),
            ("--no-stream", self.no_stream),
            ("--tokenizer", self.tokenizer.is_some()),
            ("--field", !self.field.is_empty()),
            ("--template", self.template.is_some()),
            ("--compare-with", self.compare_with.is_some()),
            ("--http2", self.http2),
            ("--certificates", self.certificates.is_some()),
            ("--token", self.token.is_some()),
            ("--headers", self.headers.is_some()),
            ("--allow-host", !self.allow_host.is_empty()),
            ("--connections", self.connections.is_some()),
            ("--patience", self.patience.is_some()),
            ("--max-time", self.max_time.is_some()),
            ("--max-requests", self.max_requests.is_some()),
            ("--max-rate", self.max_rate.is_some()),
        ];
        match of_servers.iter().find(|(_, is_given)| *is_given && self.url.is_none()) {
            Some((flag, _)) => anyhow::bail!("`{flag}` is for a server that already runs: name one by `--url`"),
            None => Ok(()),
        }
    }
}

#[cfg(not(feature = "http-load"))]
pub fn load(
    _: &UrlArguments,
    _: &crate::paths::Paths,
    _: &crate::selection::Selection,
    _: &super::load_terms::TermArguments,
    _: bool,
) -> anyhow::Result<crate::run_data::LoadRun> {
    anyhow::bail!("this build cannot ask servers: build inferbench with `--features http-load`")
}

#[cfg(feature = "http-load")]
pub use with_client::load;

#[cfg(feature = "http-load")]
mod with_client {
    use std::sync::Arc;
    use std::time::Duration;

    use anyhow::{Context, Result, bail, ensure};
    use clap::ValueEnum;

    use super::UrlArguments;
    use crate::cli::load_terms::TermArguments;
    use crate::compare::add_local;
    use crate::definition::DataSource;
    use crate::harness::keep_others_out;
    use crate::history::read_loads;
    use crate::machine::files::raise_file_limit;
    use crate::paths::Paths;
    use crate::remote::{
        self, Address, Limits, ProtocolName, Reference, Server, USUAL_TOKENS, Wishes, headers_of_file, parse_field,
        token,
    };
    use crate::run_data::LoadRun;
    use crate::selection::Selection;
    use crate::texts::TokenCounter;

    /// The variable that has the token, if no file does.
    const TOKEN: &str = "INFERBENCH_LOAD_TOKEN";

    /// Puts the server under load.
    pub fn load(
        arguments: &UrlArguments,
        paths: &Paths,
        selection: &Selection,
        terms: &TermArguments,
        is_search: bool,
    ) -> Result<LoadRun> {
        let [batch_size, sequence_length] =
            [&selection.batch_sizes, &selection.seq_lens].map(|sizes| match sizes.as_slice() {
                [] => Ok(None),
                [one] => Ok(Some(*one)),
                _ => bail!("a load test of a server has one batch size and one sequence length"),
            });
        ensure!(selection.model.len() <= 1, "a load test of a server has one model: `--model NAME`");
        let files = raise_file_limit();
        check_for_server(selection, terms)?;
        let wishes = Wishes {
            protocol: arguments.protocol.as_deref().map(protocol).transpose()?,
            model: selection.model.first().cloned(),
            batch_size: batch_size?.unwrap_or(1),
            sequence_length: sequence_length?,
            is_binary: arguments.binary,
            is_whole: arguments.no_stream,
            fields: arguments.field.iter().map(|field| parse_field(field)).collect::<Result<_>>()?,
            inputs: selection.input.iter().map(|input| input.parse()).collect::<Result<_>>()?,
            texts: match (&selection.text, &selection.data_source) {
                (Some(file), _) | (None, Some(DataSource::Text(file))) => Some(texts(file)?),
                (None, _) => None,
            },
            tokenizer: arguments.tokenizer.as_deref().map(TokenCounter::open).transpose()?.map(Arc::new),
            template: arguments.template.clone(),
            seed: terms.seed.unwrap_or(1),
            lengths: terms.lengths()?,
            has_lengths_file: terms.lengths.is_some(),
        };
        let has_texts = wishes.texts.is_some();
        let limits = arguments.limits(terms.concurrency.map(|users| users as usize));
        // Each connection has a socket, and its runtime waits with four files.
        let needed = 5 * limits.connections as u64 + 64;
        if let Some(files) = files.filter(|files| *files < needed) {
            let connections = limits.connections;
            let text = format!(
                "{connections} connections take about {needed} open files, and {files} are allowed: raise the limit (`ulimit -n {needed}`), or lower their number"
            );
            // Each user needs a connection. Without users, connections are opened only when they are needed.
            ensure!(terms.concurrency.is_none(), text);
            eprintln!("inferbench: {text}");
        }
        let headers = [
            token(arguments.token.as_deref(), TOKEN)?.into_iter().collect(),
            arguments.headers.as_deref().map(headers_of_file).transpose()?.unwrap_or_default(),
        ];
        let address = Address {
            url: arguments.url.clone().unwrap_or_default(),
            allowed_hosts: arguments.allow_host.clone(),
            is_http2: arguments.http2 || wishes.protocol == Some(ProtocolName::Grpc),
            certificates: arguments.certificates.clone(),
        };
        let compared = arguments.compare_with.as_deref();
        let samples =
            selection.data_source.clone().filter(|it| !matches!(it, DataSource::Synthetic | DataSource::Text(_)));
        let reference = match (&selection.reference, samples, compared) {
            (Some(_), Some(_), _) => bail!("the inputs are those of --reference or of --data-source: leave one out"),
            (Some(file), None, _) => Some(Reference::File(file.clone())),
            (None, Some(samples), _) => Some(Reference::Samples(samples)),
            // `digits` of `digits/ort-cpu-f32/1`.
            (None, None, Some(case)) => Some(Reference::Model(case.split('/').next().unwrap_or(case).to_owned())),
            (None, None, None) => None,
        };
        paths.check_writable()?;
        let _lock = keep_others_out(paths)?;
        let server = Server::find(&address, headers.concat(), wishes, limits, reference.as_ref(), paths)?;
        let makes_tokens = server.makes_tokens();
        let [prompt, output] = USUAL_TOKENS;
        let terms = match makes_tokens {
            true => terms.clone().with_usual_lengths(Some(prompt).filter(|_| !has_texts), output),
            false => terms.clone(),
        };
        // For a server that does not answer, the terms have no lengths.
        let terms = if server.is_found() { terms } else { terms.without_tokens() };
        // An answer without a stream would keep these bounds in any case.
        ensure!(
            makes_tokens && !arguments.no_stream || terms.ttft.or(terms.tpot).is_none(),
            "`--ttft` and `--tpot` are for answers that are streamed token by token, which these are not: bound the latency with `--bound` instead"
        );
        let terms = terms.terms(selection, is_search)?;
        let mut run = remote::load(paths, server, &terms)?;
        let loads: Vec<LoadRun> = read_loads(&paths.reports()).into_iter().filter_map(Result::ok).collect();
        add_local(&mut run.results, &loads, compared);
        Ok(run)
    }

    /// Refuses flags about the models and sessions of this program.
    fn check_for_server(selection: &Selection, terms: &TermArguments) -> Result<()> {
        let of_this_program = [
            ("--variant", !selection.variant.is_empty()),
            ("--path", !selection.path.is_empty()),
            ("--dim", !selection.dim.is_empty()),
            ("--backend", !selection.backend.is_empty()),
            ("--device", !selection.device.is_empty()),
            ("--dtype", !selection.dtype.is_empty()),
            ("--boundary", !selection.boundary.is_empty()),
            ("--phase", !selection.phase.is_empty()),
            ("--time-on", selection.time_on.is_some()),
            ("--torch-mode", !selection.torch_mode.is_empty()),
            ("--pp", !selection.pp.is_empty()),
            ("--tg", selection.tg.is_some()),
            ("--depth", !selection.depth.is_empty()),
            ("--instances", terms.instances.is_some()),
            ("--callers", terms.callers.is_some()),
            ("--max-batch", terms.max_batch.is_some()),
            ("--max-delay", terms.max_delay.is_some()),
            ("--max-growth", terms.max_growth.is_some()),
            ("--service-time", terms.service_time.is_some()),
        ];
        match of_this_program.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                bail!("a server has its own form of the model and its own sessions: leave {flag} and its variable out")
            }
            None => Ok(()),
        }
    }

    fn protocol(name: &str) -> Result<ProtocolName> {
        let names = || ProtocolName::value_variants().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        ProtocolName::from_str(name, true).ok().with_context(|| format!("--protocol: the protocols are {}", names()))
    }

    fn texts(file: &std::path::Path) -> Result<Vec<String>> {
        let text = fs_err::read_to_string(file)?;
        let texts: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        ensure!(!texts.is_empty(), "{} has no text", file.display());
        Ok(texts)
    }

    impl UrlArguments {
        fn limits(&self, users: Option<usize>) -> Limits {
            let usual = Limits::default();
            let connections = self.connections.map(|connections| connections as usize);
            Limits {
                time: self.max_time.map_or(usual.time, Duration::from_secs_f64),
                requests: self.max_requests.unwrap_or(usual.requests),
                rate: self.max_rate.unwrap_or(usual.rate),
                connections: connections.or(users.map(|users| users.min(MOST_USERS))).unwrap_or(usual.connections),
                patience: self.patience.map_or(usual.patience, Duration::from_secs_f64),
            }
        }
    }

    /// The most users that get a connection each without `--connections`.
    const MOST_USERS: usize = 1024;
}
