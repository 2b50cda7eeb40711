//! The variables in a process's environment that describe it: the two that identify it to OpenTelemetry, and those that the
//! configuration names.
//!
//! An environment contains secrets: it is read in pieces, and nothing but these variables is kept.

use std::io::{self, BufRead, Read};

use crate::procfs::ProcessDir;

/// The most bytes of an environment that are read.
const MOST_ENVIRONMENT_BYTES: u64 = 2 << 20;
/// The longest value that is kept, in bytes; a longer one is treated as absent.
const LONGEST_VALUE_BYTES: usize = 16 * 1024;

const SERVICE_NAME: &[u8] = b"OTEL_SERVICE_NAME=";
const RESOURCE_ATTRIBUTES: &[u8] = b"OTEL_RESOURCE_ATTRIBUTES=";

/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` of a process, and further variables that are sent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ResourceVariables {
    /// The name of the service.
    pub service_name: Option<String>,
    /// Resource attributes in the order of the text, decoded.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// The included variables that the process has, by name, in the order of its environment.
    pub included: Vec<(Box<str>, Box<str>)>,
}

impl ResourceVariables {
    /// Reads the environment of a living process. This reads memory of the process, so it may block.
    #[must_use]
    pub fn read(process: &ProcessDir, included: &[Box<str>]) -> Self {
        let environment = process.file("environ").ok();
        environment.and_then(|file| resource_variables(file, included).ok()).unwrap_or_default()
    }
}

/// Parses `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` and the variables with the `included` names from
/// `/proc/PID/environ`.
///
/// If a variable occurs twice, the first one is used, as in getenv(3). An empty value is treated as absent, and so are all
/// attributes if any part of them is malformed (OpenTelemetry, "Resource SDK").
///
/// # Errors
/// Any I/O error of the source.
pub fn resource_variables(environment: impl Read, included: &[Box<str>]) -> io::Result<ResourceVariables> {
    let mut reader = io::BufReader::new(environment.take(MOST_ENVIRONMENT_BYTES));
    let mut service_name = None;
    let mut attributes = None;
    let mut found: Vec<(Box<str>, Box<str>)> = Vec::new();
    let mut start = Vec::new();
    while read_variable(&mut reader, &mut start)? {
        if let Some(value) = start.strip_prefix(SERVICE_NAME) {
            service_name.get_or_insert_with(|| text(value));
        } else if let Some(value) = start.strip_prefix(RESOURCE_ATTRIBUTES) {
            attributes.get_or_insert_with(|| text(value).and_then(|value| parse_attributes(&value)));
        }
        let is_new = |name: &str| found.iter().all(|(known, _)| **known != *name);
        let included = included.iter().find_map(|name| Some((name, value_of(&start, name)?)));
        if let Some((name, value)) = included.filter(|(name, _)| is_new(name)) {
            found.push((name.clone(), value.into()));
        }
    }
    Ok(ResourceVariables {
        service_name: service_name.flatten(),
        attributes: attributes.flatten().unwrap_or_default(),
        included: found,
    })
}

/// The value in `variable`, a `NAME=value`, if it has this name.
fn value_of(variable: &[u8], name: &str) -> Option<String> {
    text(variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?)
}

/// Reads one relevant `NAME=value` into `start`, or skips it; `false` at the end.
fn read_variable(reader: &mut impl BufRead, start: &mut Vec<u8>) -> io::Result<bool> {
    start.clear();
    let longest = LONGEST_VALUE_BYTES + RESOURCE_ATTRIBUTES.len();
    let read = reader.by_ref().take(longest as u64 + 1).read_until(0, start)?;
    if start.last() == Some(&0) {
        start.pop();
    } else if read > longest {
        start.clear();
        reader.skip_until(0)?;
    }
    Ok(read > 0)
}

fn text(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// `key=value,key=value` with percent-encoded values (W3C Baggage).
fn parse_attributes(list: &str) -> Option<Vec<(Box<str>, Box<str>)>> {
    list.split(',').filter(|pair| !pair.trim().is_empty()).map(parse_attribute).collect()
}

fn parse_attribute(pair: &str) -> Option<(Box<str>, Box<str>)> {
    let (key, value) = pair.split_once('=')?;
    let (key, value) = (percent_decode(key.trim())?, percent_decode(value.trim())?);
    (!key.is_empty()).then_some((key, value))
}

fn percent_decode(encoded: &str) -> Option<Box<str>> {
    let mut decoded = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(decoded).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(variables: &ResourceVariables) -> Vec<(&str, &str)> {
        variables.attributes.iter().map(|(key, value)| (&**key, &**value)).collect()
    }

    #[test]
    fn the_two_variables_are_found_among_others() {
        let variables = resource_variables(
            b"PATH=/bin\0SECRET=OTEL_SERVICE_NAME=no\0OTEL_SERVICE_NAME=shop\0\
              OTEL_RESOURCE_ATTRIBUTES=service.version=1%2C2, deployment.environment.name = test \0\
              OTEL_SERVICE_NAME=second"
                .as_slice(),
            &[],
        )
        .unwrap();
        assert_eq!(variables.service_name.as_deref(), Some("shop"));
        assert_eq!(pairs(&variables), [("service.version", "1,2"), ("deployment.environment.name", "test")]);
    }

    #[test]
    fn included_variables_are_found_by_their_whole_name_and_no_others() {
        let names: Vec<Box<str>> = ["REGION", "TIER", "EMPTY", "OTEL_SERVICE_NAME"].map(Box::from).to_vec();
        let environment =
            b"REGIONS=no\0REGION=eu=1\0REGION=us\0TIER=\xff\0EMPTY=\0SECRET=x\0OTEL_SERVICE_NAME=shop";
        let variables = resource_variables(environment.as_slice(), &names).unwrap();
        let included = variables.included.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>();
        assert_eq!(included, [("REGION", "eu=1"), ("OTEL_SERVICE_NAME", "shop")]);
        assert_eq!(variables.service_name.as_deref(), Some("shop"));
    }

    #[test]
    fn a_malformed_part_costs_all_attributes() {
        for list in ["a=1,b", "a=%4", "a=%zz", "=1", "a=%ff"] {
            let environment = format!("OTEL_RESOURCE_ATTRIBUTES={list}\0");
            assert_eq!(
                resource_variables(environment.as_bytes(), &[]).unwrap(),
                ResourceVariables::default(),
                "{list}"
            );
        }
    }

    #[test]
    fn a_value_of_megabytes_is_passed_over() {
        let huge = "x".repeat(1 << 19);
        let environment = format!("A={huge}\0OTEL_SERVICE_NAME={huge}\0OTEL_RESOURCE_ATTRIBUTES=a=b\0");
        let variables = resource_variables(environment.as_bytes(), &[]).unwrap();
        assert_eq!(variables.service_name, None);
        assert_eq!(pairs(&variables), [("a", "b")]);
    }
}
