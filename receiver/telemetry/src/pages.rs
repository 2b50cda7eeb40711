//! The contents of the telemetry pages: metrics for Prometheus, health, and the internal state as HTML.

use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use sidewinder_config::HealthCheck;
use sidewinder_server::{Handler, PageResponse};
use sidewinder_text::escaped_lines;

use super::status;
use crate::stats::ServiceStats;

/// `/metrics`, in Prometheus' text format.
pub(super) fn metrics_handler(registry: Registry) -> Arc<Handler> {
    Arc::new(move |path| {
        let encoder = TextEncoder::new();
        (path == "/metrics").then(|| match encoder.encode_to_string(&registry.gather()) {
            Ok(text) => PageResponse::ok(prometheus::TEXT_FORMAT, text),
            Err(error) => PageResponse {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                ..PageResponse::ok(
                    "text/plain; charset=utf-8",
                    format!("the metrics can't be written: {error}\n"),
                )
            },
        })
    })
}

/// The page of the Collector's extension `health_check`: whether the service is up. Degraded features don't matter here,
/// only in `sidewinder status`: a readiness probe that fails because a privilege is missing would remove the pod from its
/// service.
pub(super) fn health_handler(config: &HealthCheck, stats: Arc<ServiceStats>) -> Arc<Handler> {
    let config = config.clone();
    Arc::new(move |path| {
        (path == config.path).then(|| {
            let is_up = stats.is_up();
            let status = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let page = match &config.response_body {
                Some(texts) => PageResponse::ok(
                    "text/plain; charset=utf-8",
                    if is_up { &texts.healthy } else { &texts.unhealthy }.clone(),
                ),
                None => PageResponse::ok("application/json", health_document(&stats, is_up)),
            };
            PageResponse { status, ..page }
        })
    })
}

fn health_document(stats: &ServiceStats, is_up: bool) -> String {
    let document = match is_up {
        true => json!({
            "status": "Server available",
            "upSince": status::rfc3339(stats.started_at()),
            "uptime": sidewinder_config::format_duration(stats.uptime()),
        }),
        false => {
            json!({ "status": "Server not available", "upSince": Timestamp::UNIX_EPOCH.to_string(), "uptime": "" })
        }
    };
    document.to_string()
}

/// The pages of the Collector's extension `zpages` that apply to Sidewinder.
pub(super) fn zpages_handler(stats: Arc<ServiceStats>) -> Arc<Handler> {
    Arc::new(move |path| {
        let (title, part) = match path.trim_end_matches('/') {
            "" | "/debug" => return Some(html_page("Sidewinder", &zpages_index())),
            "/debug/servicez" => ("Service", None),
            "/debug/pipelinez" => ("Pipelines", Some("pipelines")),
            "/debug/receiverz" => ("Receivers", Some("receivers")),
            "/debug/exporterz" => ("Exporters", Some("exporters")),
            "/debug/extensionz" => ("Extensions", Some("extensions")),
            _ => return None,
        };
        let document = status::document(&stats);
        let value = match part {
            Some(part) => document.get(part).cloned().unwrap_or_default(),
            // Parts that have a page of their own are left out.
            None => match document {
                Value::Object(all) => {
                    all.into_iter().filter(|(_, value)| !value.is_object() && !value.is_array()).collect()
                }
                other => other,
            },
        };
        let mut body = String::new();
        write_value(&mut body, &value);
        Some(html_page(title, &body))
    })
}

fn zpages_index() -> String {
    let link = |page: &str| format!("<li><a href=\"/debug/{page}\">{page}</a></li>");
    let links: String = ["servicez", "pipelinez", "receiverz", "exporterz", "extensionz"]
        .iter()
        .map(|page| link(page))
        .collect();
    format!("<ul>{links}</ul>")
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            out.push_str("<table>");
            for (key, value) in map {
                // Writing to a string does not fail.
                let _ = write!(out, "<tr><th>{}</th><td>", escape_html(key));
                write_value(out, value);
                out.push_str("</td></tr>");
            }
            out.push_str("</table>");
        }
        Value::Array(items) => {
            for item in items {
                write_value(out, item);
                out.push_str("<br>");
            }
        }
        Value::String(text) => out.push_str(&escape_html(text)),
        Value::Null => {}
        other => out.push_str(&other.to_string()),
    }
}

fn html_page(title: &str, body: &str) -> PageResponse {
    let style = "body{font-family:sans-serif}th{text-align:left;vertical-align:top;padding-right:1em}";
    PageResponse::ok(
        "text/html; charset=utf-8",
        format!(
            "<!doctype html><html lang=\"en\"><head><title>{title}</title><style>{style}</style></head>\
             <body><h1>{title}</h1>{body}</body></html>\n"
        ),
    )
}

fn escape_html(text: &str) -> String {
    let text = escaped_lines(text);
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use sidewinder_base::exit::FailureReport;
    use sidewinder_config::{Config, ResponseBody};

    use super::*;
    use crate::stats::Activity;

    fn stats() -> Arc<ServiceStats> {
        Arc::new(ServiceStats::new(Arc::new(Config::default())))
    }

    #[test]
    fn health_is_bad_before_the_start_and_good_after_it() {
        let stats = stats();
        let handler = health_handler(&HealthCheck::default(), Arc::clone(&stats));
        assert_eq!(handler("/").unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(handler("/other").is_none());
        stats.set_is_up(true);
        let page = handler("/").unwrap();
        assert_eq!(page.status, StatusCode::OK);
        let document: Value = serde_json::from_slice(&page.body).unwrap();
        assert_eq!(document["status"], "Server available");
    }

    #[test]
    fn health_responds_with_the_configured_body() {
        let response_body = Some(ResponseBody { healthy: "well".to_owned(), unhealthy: "ill".to_owned() });
        let config = HealthCheck { response_body, path: "/healthz".to_owned(), ..HealthCheck::default() };
        let stats = stats();
        let handler = health_handler(&config, Arc::clone(&stats));
        assert_eq!(handler("/healthz").unwrap().body, "ill");
        stats.set_is_up(true);
        assert_eq!(handler("/healthz").unwrap().body, "well");
    }

    #[test]
    fn external_text_is_escaped() {
        let stats = stats();
        let what = "<script>\u{1b}[2J".to_owned();
        stats.set_activity("profiling", Activity::Failed(FailureReport { what, next_step: None }));
        let page = zpages_handler(Arc::clone(&stats))("/debug/receiverz").unwrap();
        let body = String::from_utf8_lossy(&page.body);
        assert!(body.contains("&lt;script&gt;\\u{1b}[2J"), "{body}");
        assert!(!body.contains("<script>"), "{body}");
        assert!(zpages_handler(stats)("/etc/passwd").is_none());
    }
}
