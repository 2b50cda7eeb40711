//! The configuration if none is given: a file, or the exporter that OpenTelemetry's environment variables configure.
//!
//! `OTEL_EXPORTER_OTLP_PROFILES_*` takes precedence over `OTEL_EXPORTER_OTLP_*`, as in the specification of these variables.
//! The exporter requires an endpoint; without one the other variables have no effect.

use std::sync::Arc;

use crate::diagnostics::{ConfigProblem, Diagnostics};
use crate::model::Config;
use crate::schema::{WriteContext, write_config};
use crate::source::Environment;
use crate::tree::{ConfigNode, ConfigValue, Map, SourceLocation};

/// The default configuration with the settings of the environment.
pub(crate) fn tree_from_environment(environment: &dyn Environment, report: &mut Diagnostics) -> ConfigNode {
    let variables = EnvironmentVariables { environment };
    match variables.exporter(report) {
        Some(exporter) => ConfigNode::map([
            ("receivers", ConfigNode::map([("profiling", ConfigNode::new(ConfigValue::Map(Map::new())))])),
            ("exporters", ConfigNode::map([("otlp_grpc", exporter)])),
            (
                "service",
                ConfigNode::map([(
                    "pipelines",
                    ConfigNode::map([(
                        "profiles",
                        ConfigNode::map([("receivers", list("profiling")), ("exporters", list("otlp_grpc"))]),
                    )]),
                )]),
            ),
        ]),
        None => write_config(&Config::default(), &mut WriteContext::default()),
    }
}

/// Whether the variables configure the exporter, where no configuration is given.
#[must_use]
pub fn names_otel_endpoint(environment: &dyn Environment) -> bool {
    EnvironmentVariables { environment }.get("ENDPOINT").is_some()
}

fn list(id: &str) -> ConfigNode {
    ConfigNode::new(ConfigValue::List(vec![ConfigNode::text(id)]))
}

struct EnvironmentVariables<'a> {
    environment: &'a dyn Environment,
}

/// A variable that is set and not empty.
struct EnvironmentVariable {
    name: String,
    value: String,
}

impl EnvironmentVariable {
    fn place(&self) -> SourceLocation {
        SourceLocation { source: Arc::from(format!("environment variable {}", self.name)), position: None }
    }

    fn node(&self, value: ConfigValue) -> ConfigNode {
        ConfigNode::new(value).with_location(&self.place())
    }

    fn text(&self) -> ConfigNode {
        self.node(ConfigValue::Text(self.value.clone()))
    }

    fn refuse(&self, report: &mut Diagnostics, problem: ConfigProblem) {
        report.error("", Some(&self.place()), problem);
    }
}

impl EnvironmentVariables<'_> {
    fn get(&self, suffix: &str) -> Option<EnvironmentVariable> {
        ["OTEL_EXPORTER_OTLP_PROFILES_", "OTEL_EXPORTER_OTLP_"].into_iter().find_map(|prefix| {
            let name = format!("{prefix}{suffix}");
            let value = self.environment.variable(&name).filter(|value| !value.trim().is_empty())?;
            Some(EnvironmentVariable { name, value })
        })
    }

    fn exporter(&self, report: &mut Diagnostics) -> Option<ConfigNode> {
        let endpoint = self.get("ENDPOINT")?;
        if let Some(protocol) = self.get("PROTOCOL")
            && protocol.value != "grpc"
        {
            let instead = "use grpc, which a Collector takes on port 4317".to_owned();
            protocol.refuse(report, ConfigProblem::NotInThisVersion { instead });
        }
        let mut exporter = Map::new();
        let mut tls = Map::new();
        for (suffix, key) in
            [("CERTIFICATE", "ca_file"), ("CLIENT_CERTIFICATE", "cert_file"), ("CLIENT_KEY", "key_file")]
        {
            if let Some(variable) = self.get(suffix) {
                tls.insert(key.to_owned(), variable.text());
            }
        }
        if let Some(insecure) = self.insecure(&endpoint, report) {
            tls.insert("insecure".to_owned(), insecure);
        }
        if let Some(variable) = self.get("COMPRESSION") {
            exporter.insert("compression".to_owned(), variable.text());
        }
        if let Some(variable) = self.get("TIMEOUT") {
            match variable.value.trim().parse::<u32>() {
                Ok(milliseconds) => {
                    let text = ConfigValue::Text(format!("{milliseconds}ms"));
                    exporter.insert("timeout".to_owned(), variable.node(text));
                }
                Err(_) => {
                    let allowed = "a whole number of milliseconds".to_owned();
                    let found = format!("{:?}", variable.value);
                    variable.refuse(report, ConfigProblem::Value { found, allowed });
                }
            }
        }
        if let Some(variable) = self.get("HEADERS") {
            exporter.insert("headers".to_owned(), headers(&variable, report));
        }
        exporter.insert("endpoint".to_owned(), endpoint.text());
        exporter.insert("tls".to_owned(), ConfigNode::new(ConfigValue::Map(tls)));
        Some(ConfigNode::new(ConfigValue::Map(exporter)))
    }

    /// In the environment, unlike in YAML, the endpoint's scheme determines whether TLS is used; without a scheme,
    /// `INSECURE` does.
    fn insecure(&self, endpoint: &EnvironmentVariable, report: &mut Diagnostics) -> Option<ConfigNode> {
        match endpoint.value.split_once("://") {
            Some(("http", _)) => return Some(endpoint.node(ConfigValue::Bool(true))),
            Some(("https", _)) => return None,
            _ => {}
        }
        let variable = self.get("INSECURE")?;
        match variable.value.trim().to_ascii_lowercase().as_str() {
            "true" => Some(variable.node(ConfigValue::Bool(true))),
            "false" => None,
            _ => {
                let found = format!("{:?}", variable.value);
                variable.refuse(report, ConfigProblem::Value { found, allowed: "true or false".to_owned() });
                None
            }
        }
    }
}

/// Parses `name=value,name=value` with percent-encoded values; no message contains a value.
fn headers(variable: &EnvironmentVariable, report: &mut Diagnostics) -> ConfigNode {
    let mut map = Map::new();
    for pair in variable.value.split(',').filter(|pair| !pair.trim().is_empty()) {
        match pair.split_once('=').map(|(name, value)| (name.trim(), percent_decode(value.trim()))) {
            Some((name, Some(value))) => {
                drop(map.insert(name.to_owned(), variable.node(ConfigValue::Text(value))));
            }
            _ => {
                let allowed = "name=value pairs, separated by commas, values in percent encoding".to_owned();
                variable.refuse(report, ConfigProblem::Value { found: "something else".to_owned(), allowed });
            }
        }
    }
    variable.node(ConfigValue::Map(map))
}

/// Decodes a percent-encoded text; `None` if it is malformed.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_undone_or_refused() {
        assert_eq!(percent_decode("Bearer%20a%3Db").as_deref(), Some("Bearer a=b"));
        for text in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(percent_decode(text), None, "{text}");
        }
    }
}
