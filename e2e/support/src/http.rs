//! Requests to servers on the loopback interface.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use ureq::Agent;

const TIMEOUT: Duration = Duration::from_secs(60);

/// What a server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// A line for each header: its name in lower case, and its value.
    pub headers: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When the status is not 200, or the body is no JSON.
    pub fn json(&self) -> Result<Value> {
        ensure!(self.status == 200, "{}: {}", self.status, self.text());
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }
}

/// Sends a request to a port, whatever the status of the answer. A header `Host` replaces that of the port.
///
/// # Errors
/// When nothing answers.
pub fn request(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer> {
    let agent: Agent =
        Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT)).build().into();
    let url = format!("http://127.0.0.1:{port}{path}");
    let request = ureq::http::Request::builder().method(method).uri(&url);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut answer = agent.run(request.body(body)?).with_context(|| format!("{method} {url}"))?;
    let line = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
        format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
    };
    Ok(Answer {
        status: answer.status().as_u16(),
        headers: answer.headers().iter().map(line).collect(),
        body: answer.body_mut().with_config().limit(u64::MAX).read_to_vec()?,
    })
}

/// Gets what is at a path of a port.
///
/// # Errors
/// As [`request`].
pub fn get(port: u16, path: &str) -> Result<Answer> {
    request(port, "GET", path, &[], &[])
}
