//! Resolves `${...}` in values, by the Collector's rules.
//!
//! A reference has a scheme (`${env:X}`, `${env:X:-default}`, `${file:PATH}`, `${yaml:TEXT}`), or is short for an
//! environment variable (`${X}`). A reference that is the whole value is replaced by any YAML value; one within text is
//! replaced by text. Innermost references are resolved first, replacements are resolved in turn, and finally `$$` becomes a
//! single `$`.
//!
//! One deviation: if a text file is the whole value, its final line break is removed, because no token or header contains
//! one and most files do.

use std::path::Path;
use std::sync::Arc;

use crate::diagnostics::{ConfigProblem, Diagnostics};
use crate::source::{self, Environment};
use crate::tree::{ConfigNode, ConfigValue, ExpandedReference, SourceLocation};
use crate::yaml;

/// The most references in a configuration, including those in replacements.
const MAX_REFERENCES: usize = 1_000;
/// The most bytes of all replacements together.
const MAX_BYTES_BROUGHT: usize = 4 * yaml::MAX_BYTES;
/// The most values of all replacements together.
const MAX_VALUES: usize = 100_000;

/// Replaces every reference in `tree`; unresolvable ones are reported to `report`.
pub(crate) fn expand(tree: &mut ConfigNode, environment: &dyn Environment, report: &mut Diagnostics) {
    let mut expander = Expander {
        environment,
        report,
        references_left: MAX_REFERENCES,
        bytes_left: MAX_BYTES_BROUGHT,
        values_left: MAX_VALUES,
    };
    expander.node(tree, "", yaml::MAX_DEPTH);
}

struct Expander<'a> {
    environment: &'a dyn Environment,
    report: &'a mut Diagnostics,
    references_left: usize,
    bytes_left: usize,
    values_left: usize,
}

/// The replacement of a reference: its text, and the text parsed as YAML.
struct ResolvedReference {
    node: ConfigNode,
    text: String,
}

impl Expander<'_> {
    fn node(&mut self, node: &mut ConfigNode, path: &str, depth_left: usize) {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            self.report.error(path, node.location.as_ref(), ConfigProblem::Syntax(yaml::too_deep()));
            node.value = ConfigValue::Null;
            return;
        };
        if let ConfigValue::Text(text) = &mut node.value {
            let text = std::mem::take(text);
            if let Err(problem) = self.text(text, node, path) {
                self.report.error(path, node.location.as_ref(), problem);
                node.value = ConfigValue::Null;
            }
        }
        match &mut node.value {
            ConfigValue::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.node(item, &format!("{path}[{index}]"), depth_left);
                }
            }
            ConfigValue::Map(map) => {
                for (key, child) in map {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}::{key}") };
                    self.node(child, &path, depth_left);
                }
            }
            _ => {}
        }
    }

    /// Sets the value of `node` to `text`, with all its references replaced.
    fn text(&mut self, mut text: String, node: &mut ConfigNode, path: &str) -> Result<(), ConfigProblem> {
        while let Some(reference) = find_reference(&text) {
            let reference = reference.to_owned();
            // A replacement may be secret, so errors name the reference that was written.
            let first = node.expanded.as_ref().map_or(&reference, |expanded| &expanded.reference).clone();
            let refused = |reason: String| ConfigProblem::Reference { reference: first.clone(), reason };
            self.references_left = self
                .references_left
                .checked_sub(1)
                .ok_or_else(|| refused(format!("there are more than {MAX_REFERENCES} references")))?;
            let retrieved = self.resolve(&reference, node.location.as_ref(), path).map_err(refused)?;
            if text != reference {
                let growth = retrieved.text.len().saturating_mul(text.matches(&reference).count());
                if text.len().saturating_add(growth) > yaml::MAX_BYTES {
                    return Err(refused(format!("the text grows beyond {} bytes", yaml::MAX_BYTES)));
                }
                text = text.replace(&reference, &retrieved.text);
                node.expanded = Some(ExpandedReference { reference: first.clone(), text: text.clone() });
                continue;
            }
            if let ConfigValue::Text(_) = retrieved.node.value {
                text.clone_from(&retrieved.text);
                node.expanded = Some(ExpandedReference { reference: first.clone(), text: retrieved.text });
                continue;
            }
            node.expanded =
                Some(ExpandedReference { reference: first.clone(), text: unescape(&retrieved.text) });
            node.value = retrieved.node.value;
            self.values_left = self
                .values_left
                .checked_sub(mark_expanded(node, &first))
                .ok_or_else(|| refused(format!("references expand to more than {MAX_VALUES} values")))?;
            return Ok(());
        }
        let text = unescape(&text);
        if let Some(expanded) = &mut node.expanded {
            expanded.text.clone_from(&text);
        }
        node.value = ConfigValue::Text(text);
        Ok(())
    }

    fn resolve(
        &mut self,
        reference: &str,
        place: Option<&SourceLocation>,
        path: &str,
    ) -> Result<ResolvedReference, String> {
        let inside = reference.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
        if inside.contains('$') {
            return Err("a reference must not contain a dollar sign".to_owned());
        }
        let (scheme, rest) = match inside.contains(':') {
            true => source::split_scheme(inside).ok_or("there is no valid scheme before the colon")?,
            false => ("env", inside),
        };
        let (text, name) = match scheme {
            "env" => (self.variable(rest, place, path)?, format!("environment variable {rest}")),
            "yaml" => (rest.to_owned(), "yaml".to_owned()),
            "file" => {
                self.report.add_file(Path::new(rest));
                let text = source::read_file(Path::new(rest))?;
                (text.strip_suffix('\n').map_or(text.clone(), str::to_owned), rest.to_owned())
            }
            _ => {
                return Err(format!(
                    "the scheme {scheme:?} is not one of env, file, yaml; \
                     a default needs the scheme: ${{env:NAME:-default}}"
                ));
            }
        };
        self.bytes_left = self
            .bytes_left
            .checked_sub(text.len())
            .ok_or_else(|| format!("references expand to more than {MAX_BYTES_BROUGHT} bytes"))?;
        // Text that is not valid YAML is used as a string, so that keys and passwords need no quotes.
        let node = source::parse(&text, &Arc::from(name)).unwrap_or_else(|_| ConfigNode::text(text.clone()));
        Ok(ResolvedReference { node, text })
    }

    fn variable(
        &mut self,
        inside: &str,
        place: Option<&SourceLocation>,
        path: &str,
    ) -> Result<String, String> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let mut letters = name.chars();
        let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        if !starts_well || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err("a variable's name is letters, digits and underscores, no digit first".to_owned());
        }
        Ok(match (self.environment.variable(name), default) {
            (Some(value), _) => value,
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                let message = format!("the environment variable {name} is not set and counts as empty");
                self.report.warn(path, place, message);
                String::new()
            }
        })
    }
}

/// Marks everything below `node` as a replacement of `reference`, and counts it.
fn mark_expanded(node: &mut ConfigNode, reference: &str) -> usize {
    if node.expanded.is_none() {
        let text = match &node.value {
            ConfigValue::Text(text) => text.clone(),
            ConfigValue::Integer(value) => value.to_string(),
            ConfigValue::Float(value) => value.to_string(),
            ConfigValue::Bool(value) => value.to_string(),
            ConfigValue::Null | ConfigValue::List(_) | ConfigValue::Map(_) => String::new(),
        };
        node.expanded = Some(ExpandedReference { reference: reference.to_owned(), text });
    }
    1 + match &mut node.value {
        ConfigValue::List(items) => items.iter_mut().map(|item| mark_expanded(item, reference)).sum(),
        ConfigValue::Map(map) => map.values_mut().map(|child| mark_expanded(child, reference)).sum(),
        _ => 0,
    }
}

/// The first innermost `${...}` that does not follow an odd number of dollar signs.
fn find_reference(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let close = rest.find('}')?;
        let (head, tail) = rest.split_at(close + 1);
        if let Some(open) = head.rfind("${") {
            let dollars = head.bytes().take(open).rev().take_while(|byte| *byte == b'$').count();
            if dollars % 2 == 0 {
                return head.get(open..);
            }
        }
        rest = tail;
    }
}

fn unescape(text: &str) -> String {
    text.replace("$$", "$")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn expanded(text: &str, variables: &[(&str, &str)]) -> (ConfigNode, Diagnostics) {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut report = Diagnostics::default();
        let mut node = ConfigNode::text(text);
        expand(&mut node, &variables, &mut report);
        (node, report)
    }

    fn value(text: &str, variables: &[(&str, &str)]) -> ConfigValue {
        let (node, report) = expanded(text, variables);
        assert!(report.finish().is_ok(), "{text}");
        node.value
    }

    fn refusal(text: &str) -> String {
        expanded(text, &[]).1.finish().unwrap_err().to_string()
    }

    #[test]
    fn a_reference_alone_brings_any_value_and_inside_text_its_text() {
        let env = [("PORT", "4317"), ("HOST", "collector"), ("EMPTY", "")];
        assert_eq!(value("${env:PORT}", &env), ConfigValue::Integer(4317));
        assert_eq!(value("${HOST}:${env:PORT}", &env), ConfigValue::Text("collector:4317".to_owned()));
        assert_eq!(
            value("${yaml:[1]}", &env),
            ConfigValue::List(vec![value_node("${yaml:[1]}", ConfigValue::Integer(1))])
        );
        assert_eq!(value("${env:EMPTY}", &env), ConfigValue::Null);
    }

    fn value_node(reference: &str, value: ConfigValue) -> ConfigNode {
        let mut node = source::parse("[1]", &Arc::from("yaml")).unwrap();
        mark_expanded(&mut node, reference);
        let ConfigValue::List(mut items) = node.value else { panic!("a list was written") };
        assert_eq!(items[0].value, value);
        items.remove(0)
    }

    #[test]
    fn text_that_looks_like_a_number_keeps_its_letters() {
        let (node, _) = expanded("${env:ORG}", &[("ORG", "0123")]);
        assert_eq!(node.expanded.unwrap().text, "0123");
    }

    #[test]
    fn a_default_holds_only_where_the_variable_is_not_set() {
        assert_eq!(value("${env:X:-7}", &[]), ConfigValue::Integer(7));
        assert_eq!(value("${env:X:-7}", &[("X", "8")]), ConfigValue::Integer(8));
        assert_eq!(value("${env:X:-a:-b}", &[]), ConfigValue::Text("a:-b".to_owned()));
    }

    #[test]
    fn two_dollars_are_one_and_keep_a_reference_from_being_one() {
        let env = [("X", "1")];
        for (text, plain) in [
            ("$$", "$"),
            ("a$b", "a$b"),
            ("$${env:X}", "${env:X}"),
            ("$$${env:X}", "$1"),
            ("${", "${"),
            ("}", "}"),
        ] {
            assert_eq!(value(text, &env), ConfigValue::Text(plain.to_owned()), "{text}");
        }
    }

    #[test]
    fn references_are_resolved_from_the_inside_out_and_again() {
        let env = [("NAME", "X"), ("X", "${env:Y}"), ("Y", "deep")];
        assert_eq!(value("${env:${env:NAME}}", &env), ConfigValue::Text("deep".to_owned()));
    }

    #[test]
    fn a_reference_to_itself_ends() {
        let (_, report) = expanded("${env:X}", &[("X", "${env:X}")]);
        assert!(report.finish().unwrap_err().to_string().contains("more than 1000 references"));
        let (_, report) = expanded("${env:X}", &[("X", "[x${env:X}${env:X}]")]);
        assert!(report.finish().is_err());
        let (_, report) = expanded("${env:X}", &[("X", "{a: '${env:X}'}")]);
        assert!(report.finish().is_err());
    }

    #[test]
    fn a_file_brings_its_text_without_the_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cr3t\n").unwrap();
        assert_eq!(
            value(&format!("${{file:{}}}", path.to_str().unwrap()), &[]),
            ConfigValue::Text("s3cr3t".to_owned())
        );
    }

    #[test]
    fn the_error_for_an_unresolvable_reference_gives_the_reason() {
        assert!(refusal("${file:/nonexistent/token}").contains("No such file"));
        assert!(refusal("${env:1X}").contains("no digit first"));
        assert!(refusal("${NAME:-x}").contains("${env:NAME:-default}"));
        assert!(refusal("${http:x}").contains("is not one of env, file, yaml"));
    }

    #[test]
    fn an_unset_variable_is_empty_and_a_warning() {
        let (node, report) = expanded("${env:NOPE}", &[]);
        assert_eq!(node.value, ConfigValue::Null);
        assert!(report.finish().unwrap().0[0].message.contains("NOPE is not set"));
    }
}
