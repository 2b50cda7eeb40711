//! Spans as the Collector's file exporter writes them: a line of OTLP's JSON for each request.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Attributes whose values are texts.
pub type Attributes = BTreeMap<String, String>;

/// One span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The trace that it is of.
    pub trace_id: [u8; 16],
    /// What it is called in it.
    pub span_id: [u8; 8],
    /// When it began and ended, since the epoch.
    pub time_unix_ns: [u64; 2],
    /// Its attributes.
    pub attributes: Attributes,
    /// The attributes of who sent it.
    pub resource: Arc<Attributes>,
}

/// Reads such a file.
///
/// # Errors
/// When it holds something else.
pub fn of_collector_file(bytes: &[u8]) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    for line in std::str::from_utf8(bytes)?.lines() {
        let request: Value = serde_json::from_str(line)?;
        for of_resource in list(&request, "resourceSpans") {
            let resource = Arc::new(attributes(&of_resource["resource"]));
            for of_scope in list(of_resource, "scopeSpans") {
                for span in list(of_scope, "spans") {
                    let parsed = parse(span, &resource);
                    spans.push(parsed.with_context(|| format!("{span} is no span"))?);
                }
            }
        }
    }
    Ok(spans)
}

fn list<'value>(of: &'value Value, key: &str) -> &'value [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

fn attributes(of: &Value) -> Attributes {
    let pairs = list(of, "attributes").iter().filter_map(|pair| {
        let text = pair["value"]["stringValue"].as_str()?;
        Some((pair["key"].as_str()?.to_owned(), text.to_owned()))
    });
    pairs.collect()
}

fn parse(span: &Value, resource: &Arc<Attributes>) -> Option<Span> {
    let digits = |key: &str| span[key].as_str();
    // Numbers of 64 bits are texts in protobuf's JSON.
    let time = |key: &str| span[key].as_str()?.parse().ok();
    let trace_id = digits("traceId").filter(|digits| digits.len() == 32)?;
    let span_id = digits("spanId").filter(|digits| digits.len() == 16)?;
    Some(Span {
        trace_id: u128::from_str_radix(trace_id, 16).ok()?.to_be_bytes(),
        span_id: u64::from_str_radix(span_id, 16).ok()?.to_be_bytes(),
        time_unix_ns: [time("startTimeUnixNano")?, time("endTimeUnixNano")?],
        attributes: attributes(span),
        resource: Arc::clone(resource),
    })
}
