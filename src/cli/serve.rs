//! `inferbench serve`: the endpoint, and a page that runs with it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::selection::values;

/// The fewest characters of a token: shorter ones can be guessed.
#[cfg(feature = "serve")]
const SHORTEST_TOKEN: usize = 16;

/// Serve measurements over HTTP, with a page to start and follow them
#[derive(Args)]
#[cfg_attr(not(feature = "serve"), allow(dead_code, reason = "only the server reads the arguments"))]
#[command(
    after_help = "This needs a build with the Cargo feature `serve`, such as that of scripts/bench. One measurement runs at a time; others wait in the queue. On Ctrl-C or SIGTERM, the server finishes the case that it is \
        measuring and exits.\n\nExamples:\n  inferbench serve\n  inferbench serve --listen 0.0.0.0:8000 --token /etc/inferbench/token --allow-host bench.example.org\n  \
        curl 'http://127.0.0.1:8000/api/v1/benchmark/digits?device=cpu&iterations=100'"
)]
pub struct Arguments {
    /// The address or name, and the port, to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = address)]
    listen: SocketAddr,
    /// A file with the token that each request has to carry. Without it, the value of INFERBENCH_TOKEN is the token. An
    /// address that other machines can reach needs one of the two
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// A host name that requests may use, besides localhost and addresses; may be repeated
    #[arg(long = "allow-host", value_name = "NAME", value_parser = host_name)]
    hosts: Vec<String>,
    /// Measurements that may wait; further ones are refused
    // At least 1: every measurement passes through the queue, even if it is alone.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    queue: usize,
    /// The most calls that a request may ask for
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_iterations: usize,
    /// The time after which a case is stopped, in seconds or with a unit, such as 5min
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
    timeout: f64,
}

/// Resolves a host and a port. If a name has several addresses, as `localhost` has, one of IPv4 is preferred.
fn address(text: &str) -> Result<SocketAddr> {
    let how = "write a host and a port, such as 127.0.0.1:8000";
    let found = text.to_socket_addrs().map_err(|error| anyhow!("{error}; {how}"))?;
    found.min_by_key(SocketAddr::is_ipv6).context("the name has no address")
}

/// Reads a host name. Ports are not compared, so a name with a port would never match.
fn host_name(text: &str) -> Result<String> {
    ensure!(!text.is_empty() && !text.contains([':', '/']), "write the name alone, without http:// and without a port");
    Ok(text.to_owned())
}

/// Reads a timeout. `inferbench run` would refuse any other, and every measurement of the server would fail.
fn seconds(text: &str) -> Result<f64> {
    let seconds = values::seconds(text)?;
    ensure!((0.001..=365.0 * 86_400.0).contains(&seconds), "not from 0.001 s to a year");
    Ok(seconds)
}

#[cfg(not(feature = "serve"))]
pub fn run(_: &Arguments) -> Result<u8> {
    anyhow::bail!("this inferbench is built without the server; build it with `--features serve`")
}

#[cfg(feature = "serve")]
pub fn run(arguments: &Arguments) -> Result<u8> {
    let settings = crate::service::Settings {
        listen: arguments.listen,
        token: arguments.token()?,
        hosts: arguments.hosts.clone(),
        places: arguments.queue,
        most_iterations: arguments.max_iterations,
        timeout_seconds: arguments.timeout,
    };
    crate::service::serve(crate::paths::Paths::find(), settings)
}

#[cfg(feature = "serve")]
impl Arguments {
    /// Reads the token from a file or a variable, because the list of processes shows what is given by a flag.
    fn token(&self) -> Result<Option<String>> {
        let text = match &self.token {
            Some(file) => {
                let how = "`--token` names a file that has the token in its only line";
                Some(fs_err::read_to_string(file).context(how)?)
            }
            None => std::env::var("INFERBENCH_TOKEN").ok(),
        };
        let token = text.map(|text| text.trim().to_owned()).filter(|token| !token.is_empty() || self.token.is_some());
        if let Some(token) = &token {
            let is_usable = token.len() >= SHORTEST_TOKEN && token.chars().all(|c| c.is_ascii_graphic());
            ensure!(
                is_usable,
                "the token has to be at least {SHORTEST_TOKEN} characters of ASCII without spaces; `openssl rand -hex 32` makes one"
            );
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn names_resolve_and_a_name_with_a_port_and_a_time_that_no_run_takes_are_refused() {
        let parsed = |flags: &[&str]| Command::try_parse_from([&["serve"][..], flags].concat());
        let arguments = parsed(&["--allow-host", "bench.example.org", "--timeout", "500ms"]).ok().unwrap().arguments;
        assert_eq!((arguments.hosts.as_slice(), arguments.timeout), (["bench.example.org".to_owned()].as_slice(), 0.5));
        let of_name = parsed(&["--listen", "localhost:7"]).ok().unwrap().arguments.listen;
        assert!(of_name.ip().is_loopback() && of_name.port() == 7, "{of_name}");
        for (flag, value, why) in [
            ("--listen", "localhost", "a host and a port"),
            ("--allow-host", "bench.example.org:8000", "without a port"),
            ("--allow-host", "http://bench.example.org", "without http://"),
            ("--timeout", "nan", "to a year"),
            ("--timeout", "0", "to a year"),
        ] {
            let error = parsed(&[flag, value]).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
