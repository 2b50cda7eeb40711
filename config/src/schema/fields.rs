//! One list of keys for two directions: reading a given configuration and writing the effective one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::known::{check_keys, join, map_of};
use super::scalar::{InvalidScalar, Scalar, ValueShape, as_text};
use crate::diagnostics::{ConfigProblem, Diagnostics};
use crate::duration;
use crate::model::Secret;
use crate::tree::{ConfigNode, ConfigValue, Map, SourceLocation};

/// A map of configuration with a fixed set of keys.
pub(crate) trait KeyGroup {
    /// Lists the keys, each with the variable for its value: one list for both directions.
    fn fields(&mut self, fields: &mut FieldVisitor<'_>);
}

/// One group that is read or written.
pub(crate) struct FieldVisitor<'a> {
    /// The group's path in the configuration, `exporters::otlp_grpc/west::tls`.
    path: String,
    /// The group's path in the reference table, `exporters::otlp_grpc::tls`.
    schema: String,
    direction: Direction<'a>,
}

enum Direction<'a> {
    Read { given: &'a Map, place: Option<&'a SourceLocation>, report: &'a mut Diagnostics },
    Write { map: &'a mut Map, written: &'a mut WriteContext },
}

/// Options for writing, and the keys written so far.
#[derive(Default)]
pub(crate) struct WriteContext {
    /// Whether secrets are written unredacted.
    pub(crate) reveal: bool,
    /// All keys written.
    pub(crate) keys: Vec<WrittenKey>,
}

/// A key with the properties of its type.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WrittenKey {
    /// Its path in the reference table.
    pub(crate) path: String,
    /// Its accepted values, in words.
    pub(crate) allowed: String,
    /// Its accepted values, for programs.
    pub(crate) shape: ValueShape,
    /// Its value.
    pub(crate) value: ConfigValue,
}

/// Reads `group` from `node`; missing keys keep their values.
pub(super) fn read_group(
    group: &mut (impl KeyGroup + ?Sized),
    path: &str,
    schema: &str,
    node: &ConfigNode,
    report: &mut Diagnostics,
) {
    let Some(given) = map_of(path, node, report) else { return };
    check_keys(path, schema, given, report);
    let direction = Direction::Read { given, place: node.key_location.as_ref(), report };
    group.fields(&mut FieldVisitor { path: path.to_owned(), schema: schema.to_owned(), direction });
}

/// Writes `group` as a map.
pub(crate) fn write_fields(
    group: &mut (impl KeyGroup + ?Sized),
    schema: &str,
    written: &mut WriteContext,
) -> ConfigNode {
    let mut map = Map::new();
    let direction = Direction::Write { map: &mut map, written };
    group.fields(&mut FieldVisitor { path: schema.to_owned(), schema: schema.to_owned(), direction });
    ConfigNode::new(ConfigValue::Map(map))
}

impl FieldVisitor<'_> {
    /// The node of `key`; null is treated as missing, as in the Collector.
    fn given(&self, key: &str) -> Option<&ConfigNode> {
        match &self.direction {
            Direction::Read { given, .. } => given.get(key).filter(|node| node.value != ConfigValue::Null),
            Direction::Write { .. } => None,
        }
    }

    /// Whether the user gave `key`; always false when writing.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given(key).is_some()
    }

    /// A single value.
    pub(super) fn value<T: Scalar>(&mut self, key: &str, slot: &mut T) {
        self.checked(key, slot, T::allowed(), T::read);
    }

    /// A single value without a default.
    pub(super) fn required<T: Scalar>(&mut self, key: &str, slot: &mut T) {
        let is_given = self.is_given(key);
        if let Direction::Read { place, report, .. } = &mut self.direction
            && !is_given
        {
            let problem = ConfigProblem::Missing { allowed: T::allowed() };
            report.error(&join(&self.path, key), *place, problem);
            return;
        }
        self.value(key, slot);
    }

    /// A single optional value.
    pub(super) fn optional<T: Scalar>(&mut self, key: &str, slot: &mut Option<T>) {
        match self.read(key, &T::allowed(), T::read) {
            Some(Ok(value)) => *slot = Some(value),
            Some(Err(problem)) => self.error(key, problem),
            None => match slot.as_ref().map(T::write) {
                Some(value) => self.write(key, T::allowed(), T::shape(), value, T::SECRET),
                None => self.describe(key, T::allowed(), T::shape(), ConfigValue::Null),
            },
        }
    }

    /// A single optional value; an empty text means that it is absent, as in the Collector.
    pub(super) fn optional_or_empty<T: Scalar>(&mut self, key: &str, slot: &mut Option<T>) {
        match self.given(key).and_then(as_text) {
            Some("") => *slot = None,
            _ => self.optional(key, slot),
        }
    }

    /// A duration within bounds.
    pub(super) fn duration(&mut self, key: &str, slot: &mut Duration, bounds: &RangeInclusive<Duration>) {
        let (least, most) = (duration::format(*bounds.start()), duration::format(*bounds.end()));
        self.checked(key, slot, format!("a duration from {least} to {most}"), |node| {
            Duration::read(node).and_then(|given| match bounds.contains(&given) {
                true => Ok(given),
                false => Err(InvalidScalar::default()),
            })
        });
    }

    /// A duration written as an integer of milliseconds.
    pub(super) fn milliseconds(&mut self, key: &str, slot: &mut Duration) {
        let mut number = u64::try_from(slot.as_millis()).unwrap_or(u64::MAX);
        self.checked(key, &mut number, "a whole number of milliseconds, at least 1".to_owned(), u64::read);
        *slot = Duration::from_millis(number);
    }

    fn checked<T: Scalar>(
        &mut self,
        key: &str,
        slot: &mut T,
        allowed: String,
        read: impl Fn(&ConfigNode) -> Result<T, InvalidScalar>,
    ) {
        match self.read(key, &allowed, read) {
            Some(Ok(value)) => *slot = value,
            Some(Err(problem)) => self.error(key, problem),
            None => {
                let value = slot.write();
                self.write(key, allowed, T::shape(), value, T::SECRET);
            }
        }
    }

    /// The parsed value of `key`; `None` if it is not given.
    fn read<T: Scalar>(
        &self,
        key: &str,
        allowed: &str,
        read: impl Fn(&ConfigNode) -> Result<T, InvalidScalar>,
    ) -> Option<Result<T, ConfigProblem>> {
        let node = self.given(key)?;
        Some(read(node).map_err(|refused| value_problem::<T>(node, allowed, refused)))
    }

    /// A list of single values, which replaces the default. Returns whether it is valid.
    pub(super) fn list<T: Scalar>(&mut self, key: &str, slot: &mut Vec<T>) -> bool {
        let allowed = format!("a list, each item {}", T::allowed());
        let Some(node) = self.given(key) else {
            let items = slot.iter().map(|item| ConfigNode::new(item.write())).collect();
            self.write(key, allowed, ValueShape::List(Box::new(T::shape())), ConfigValue::List(items), false);
            return true;
        };
        let ConfigValue::List(items) = &node.value else {
            let problem = ConfigProblem::Value { found: node.kind().to_owned(), allowed };
            self.error(key, problem);
            return false;
        };
        let read = |item| T::read(item).map_err(|refused| value_problem::<T>(item, &T::allowed(), refused));
        let items: Vec<Result<T, ConfigProblem>> = items.iter().map(read).collect();
        slot.clear();
        let given = items.len();
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Ok(item) => slot.push(item),
                Err(problem) => self.item_error(key, index, problem),
            }
        }
        slot.len() == given
    }

    /// A map with user-defined keys.
    pub(super) fn group(&mut self, key: &str, group: &mut impl KeyGroup) {
        let (path, schema) = (join(&self.path, key), join(&self.schema, key));
        match &mut self.direction {
            Direction::Read { given, report, .. } => {
                if let Some(node) = given.get(key) {
                    read_group(group, &path, &schema, node, report);
                }
            }
            Direction::Write { map, written } => {
                let node = write_fields(group, &schema, written);
                map.insert(key.to_owned(), node);
            }
        }
    }

    /// An optional map with user-defined keys.
    pub(super) fn optional_group<G: KeyGroup + Default>(&mut self, key: &str, slot: &mut Option<G>) {
        if self.is_given(key) || slot.is_some() {
            self.group(key, slot.get_or_insert_default());
        }
    }

    /// An integer for which zero is accepted.
    pub(super) fn value_or_zero(&mut self, key: &str, slot: &mut u64) {
        let allowed = "a whole number, 0 for no limit".to_owned();
        self.checked(key, slot, allowed, |node| match node.value {
            ConfigValue::Integer(0) => Ok(0),
            _ => u64::read(node),
        });
        if let Direction::Write { written, .. } = &mut self.direction
            && let Some(key) = written.keys.last_mut()
        {
            key.shape = ValueShape::Number { is_whole: true, min: 0.0, max: None };
        }
    }

    /// A list of maps, which replaces the default.
    pub(super) fn groups<G: KeyGroup + Default>(&mut self, key: &str, slot: &mut Vec<G>) {
        let (path, schema) = (join(&self.path, key), join(&self.schema, key) + "[]");
        match &mut self.direction {
            Direction::Read { given, report, .. } => {
                let Some(node) = given.get(key) else { return };
                let items: &[ConfigNode] = match &node.value {
                    ConfigValue::List(items) => items,
                    ConfigValue::Null => return,
                    _ => {
                        let allowed = "a list of maps".to_owned();
                        let problem = ConfigProblem::Value { found: node.kind().to_owned(), allowed };
                        return report.error(&path, node.location.as_ref(), problem);
                    }
                };
                slot.clear();
                for (index, item) in items.iter().enumerate() {
                    let mut group = G::default();
                    read_group(&mut group, &format!("{path}[{index}]"), &schema, item, report);
                    slot.push(group);
                }
            }
            Direction::Write { map, written } => {
                let list = join(&self.schema, key);
                written.keys.push(WrittenKey {
                    path: list,
                    allowed: "a list of maps".to_owned(),
                    shape: ValueShape::Maps,
                    value: ConfigValue::List(Vec::new()),
                });
                let items = slot.iter_mut().map(|group| write_fields(group, &schema, written)).collect();
                map.insert(key.to_owned(), ConfigNode::new(ConfigValue::List(items)));
            }
        }
    }

    /// Names with secret values, `{name: value}` or `[{name: ..., value: ...}]` as in the Collector. `check` may normalize a
    /// name, and returns an error if it or its value is not valid.
    pub(super) fn headers(
        &mut self,
        key: &str,
        slot: &mut BTreeMap<String, Secret>,
        check: impl Fn(&str, &str) -> Result<String, String>,
    ) {
        let allowed = "a map of names to text";
        let Some(node) = self.given(key) else {
            let revealed =
                slot.iter().map(|(name, value)| (name.clone(), ConfigNode::text(value.reveal()))).collect();
            let redacted =
                slot.keys().map(|name| (name.clone(), ConfigNode::text(Secret::REDACTED))).collect();
            let map = if self.reveals() { revealed } else { redacted };
            return self.write(key, allowed.to_owned(), ValueShape::Headers, ConfigValue::Map(map), false);
        };
        let mut headers = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, value) in pairs(node) {
            let read = match (name, value) {
                (Some(name), Some(value)) => check(name, value).map(|name| (name, value)),
                (Some(name), None) => Err(format!("the value of {name:?} is not text: put it in quotes")),
                (None, _) => Err(format!("expected {allowed}")),
            };
            match read {
                Ok((name, value)) => {
                    if headers.insert(name.clone(), Secret::new(value.to_owned())).is_some() {
                        problems.push(format!("{name:?} is given twice"));
                    }
                }
                Err(reason) => problems.push(reason),
            }
        }
        *slot = headers;
        for reason in problems {
            self.error(key, ConfigProblem::Contradiction(reason));
        }
    }

    /// Which one of `keys` is given: at most one, and at least one if `must`. When writing, `current`.
    pub(super) fn choice(
        &mut self,
        keys: &[&'static str],
        must: bool,
        current: Option<&'static str>,
    ) -> Option<&'static str> {
        let Direction::Read { .. } = self.direction else { return current };
        let mut given = keys.iter().copied().filter(|key| self.is_given(key));
        match (given.next(), given.next()) {
            (Some(key), None) => return Some(key),
            (None, _) if !must => return None,
            _ => {}
        }
        let some = if must { "exactly one" } else { "at most one" };
        self.contradiction(&format!("takes {some} of {}", keys.join(", ")));
        None
    }

    /// Records an error in a value that its type can't detect.
    pub(super) fn error(&mut self, key: &str, problem: ConfigProblem) {
        let Direction::Read { given, place, report } = &mut self.direction else { return };
        let at = given.get(key).and_then(|node| node.location.as_ref()).or(*place);
        report.error(&join(&self.path, key), at, problem);
    }

    fn item_error(&mut self, key: &str, index: usize, problem: ConfigProblem) {
        let Direction::Read { given, report, .. } = &mut self.direction else { return };
        let at = match given.get(key).map(|node| &node.value) {
            Some(ConfigValue::List(items)) => items.get(index).and_then(|item| item.location.as_ref()),
            _ => None,
        };
        report.error(&format!("{}[{index}]", join(&self.path, key)), at, problem);
    }

    /// Records that values of this group contradict each other.
    pub(super) fn contradiction(&mut self, reason: &str) {
        if let Direction::Read { place, report, .. } = &mut self.direction {
            report.error(&self.path, *place, ConfigProblem::Contradiction(reason.to_owned()));
        }
    }

    /// Records a warning on `key`.
    pub(super) fn warn(&mut self, key: &str, message: &str) {
        let Direction::Read { given, place, report } = &mut self.direction else { return };
        let at = given.get(key).and_then(|node| node.key_location.as_ref()).or(*place);
        report.warn(&join(&self.path, key), at, message);
    }

    /// All keys of the group that the user gave, known or not.
    pub(super) fn entries(&self) -> Vec<(String, ConfigNode)> {
        match &self.direction {
            Direction::Read { given, .. } => {
                given.iter().map(|(k, node)| (k.clone(), node.clone())).collect()
            }
            Direction::Write { .. } => Vec::new(),
        }
    }

    /// Writes an entry with a user-defined key.
    pub(super) fn write_entry(&mut self, key: &str, value: ConfigValue) {
        if let Direction::Write { map, .. } = &mut self.direction {
            map.insert(key.to_owned(), ConfigNode::new(value));
        }
    }

    fn reveals(&self) -> bool {
        matches!(&self.direction, Direction::Write { written, .. } if written.reveal)
    }

    fn write(&mut self, key: &str, allowed: String, shape: ValueShape, value: ConfigValue, secret: bool) {
        let value =
            if secret && !self.reveals() { ConfigValue::Text(Secret::REDACTED.to_owned()) } else { value };
        self.describe(key, allowed, shape, value.clone());
        self.write_entry(key, value);
    }

    fn describe(&mut self, key: &str, allowed: String, shape: ValueShape, value: ConfigValue) {
        if let Direction::Write { written, .. } = &mut self.direction {
            written.keys.push(WrittenKey { path: join(&self.schema, key), allowed, shape, value });
        }
    }
}

fn value_problem<T: Scalar>(node: &ConfigNode, allowed: &str, refused: InvalidScalar) -> ConfigProblem {
    let found = if T::SECRET { node.kind().to_owned() } else { node.describe() };
    let found = match refused.0 {
        Some(reason) => format!("{found}: {reason}"),
        None => found,
    };
    ConfigProblem::Value { found, allowed: allowed.to_owned() }
}

/// Names and values of a map, or of a list of maps with `name` and `value`; absent if not text.
fn pairs(node: &ConfigNode) -> Vec<(Option<&str>, Option<&str>)> {
    match &node.value {
        ConfigValue::Map(map) => {
            map.iter().map(|(name, value)| (Some(name.as_str()), as_text(value))).collect()
        }
        ConfigValue::List(items) => items
            .iter()
            .map(|item| match &item.value {
                ConfigValue::Map(map) => {
                    (map.get("name").and_then(as_text), map.get("value").and_then(as_text))
                }
                _ => (None, None),
            })
            .collect(),
        _ => vec![(None, None)],
    }
}
