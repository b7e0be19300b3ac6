//! How the server is set up.

use std::net::SocketAddr;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// What each request has to carry. It may be absent on a loopback address only.
    pub token: Option<String>,
    /// Names by which clients may call the server, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Jobs that may wait.
    pub places: usize,
    pub most_iterations: usize,
    /// Seconds after which a case is stopped.
    pub timeout_seconds: f64,
}
