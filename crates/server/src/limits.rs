//! Limits of everything that comes from outside, each with a name.

use std::time::Duration;

/// What is accepted, and for how long it is waited for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long a head may take to arrive.
    pub head_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_time: Duration,
    /// Connections at a time; others are told to come back.
    pub connections: usize,
    /// Live streams at a time; others are told to come back.
    pub streams: usize,
    /// Workers elsewhere that wait for commands at a time; others are told to come back.
    pub polls: usize,
    /// How long one of them waits at most.
    pub poll_time: Duration,
    /// Commands that one claim brings at most.
    pub claim: usize,
    /// Requests of one token in a second, on average.
    pub per_second: u32,
    /// Requests of one token at once.
    pub burst: u32,
    /// Items of a page.
    pub page: usize,
    /// Rows that one request for a list passes, whether they fit or not.
    pub look: usize,
    /// How long connections may go on after the server was asked to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 << 10,
            headers: 64,
            head_time: Duration::from_secs(5),
            body_bytes: 2 << 20,
            body_time: Duration::from_secs(30),
            connections: 1024,
            streams: 64,
            polls: 256,
            poll_time: Duration::from_secs(30),
            claim: 100,
            per_second: 100,
            burst: 200,
            page: 500,
            look: 50_000,
            drain: Duration::from_secs(5),
        }
    }
}
