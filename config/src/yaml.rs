//! Converts YAML text to trees with source locations, and back.
//!
//! One pass over `saphyr-parser`'s events yields values and locations. Depth and size are bounded (with aliases, a small
//! text can become an enormous tree), and features that a configuration does not need are refused: tags, keys that are not
//! text, duplicate keys.

mod output;
mod scalar;
mod tag;

use std::collections::BTreeMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

pub(crate) use self::output::{write, write_json};
use self::tag::check_tag;
use crate::tree::{ConfigNode, ConfigValue, Map, SourceLocation};

/// The most bytes that one source may have.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The most values of one source; each anchor and alias counts its values again.
const MAX_NODES: usize = 100_000;
/// The most nested maps and lists.
pub(crate) const MAX_DEPTH: usize = 64;

/// YAML's merge key.
const MERGE_KEY: &str = "<<";

/// The error for any other key.
const KEY_IS_TEXT: &str = "expected a key that is text, in quotes if it looks like something else";

/// Line and column, both from 1.
type LineColumn = (usize, usize);

/// An error in a YAML text, and its position.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    /// The problem; never contains a value.
    pub(crate) detail: String,
    /// Line and column, both from 1.
    pub(crate) position: Option<LineColumn>,
}

impl From<ScanError> for SyntaxError {
    fn from(error: ScanError) -> Self {
        Self { detail: error.info().to_owned(), position: Some(position(*error.marker())) }
    }
}

/// The error for a text with more than [`MAX_DEPTH`] levels.
pub(crate) fn too_deep() -> String {
    format!("nested deeper than {MAX_DEPTH} levels")
}

/// Parses a text with one document; all nodes have locations in `source`. An empty document is null.
///
/// # Errors
/// If it is not valid YAML, exceeds a limit, or uses an unsupported feature.
pub(crate) fn parse(text: &str, source: &Arc<str>) -> Result<ConfigNode, SyntaxError> {
    if text.len() > MAX_BYTES {
        return Err(SyntaxError { detail: format!("longer than {MAX_BYTES} bytes"), position: None });
    }
    if let Some(position) = too_many_brackets(text) {
        return Err(SyntaxError {
            detail: format!("more than {MAX_DEPTH} brackets are open"),
            position: Some(position),
        });
    }
    let mut reader = TreeBuilder::new(source);
    for event in Parser::new_from_str(text) {
        let (event, span) = event?;
        let position = position(span.start);
        let taken = reader.handle_event(event, position);
        taken.map_err(|detail| SyntaxError { detail, position: Some(position) })?;
    }
    let nowhere = SourceLocation { source: Arc::clone(source), position: None };
    Ok(reader.document.unwrap_or_else(|| ConfigNode::new(ConfigValue::Null).with_location(&nowhere)))
}

fn position(marker: Marker) -> LineColumn {
    (marker.line(), marker.col() + 1)
}

/// The position at which more brackets are open than a configuration may have.
///
/// Inside brackets the scanner reads ahead for a colon, which may come after they are closed, in time that grows with the
/// square of the open brackets; so they are counted before. Brackets in quotes and comments count too: configurations don't
/// have that many.
fn too_many_brackets(text: &str) -> Option<LineColumn> {
    let mut open = 0_usize;
    for (line, row) in text.lines().enumerate() {
        for (column, letter) in row.chars().enumerate() {
            match letter {
                '[' | '{' => open += 1,
                ']' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
            if open > MAX_DEPTH {
                return Some((line + 1, column + 1));
            }
        }
    }
    None
}

/// A complete value, and its size for aliases.
#[derive(Clone)]
struct Subtree {
    node: ConfigNode,
    /// The number of values, including itself.
    values: usize,
    /// The number of nested levels of maps and lists.
    levels: usize,
}

/// An unfinished map or list.
struct OpenCollection {
    location: SourceLocation,
    /// The anchor's ID; 0 if it has none.
    anchor: usize,
    inside: CollectionContent,
    values: usize,
    levels: usize,
}

enum CollectionContent {
    List(Vec<ConfigNode>),
    Map {
        map: Map,
        /// The key of the next value, and its location.
        key: Option<(String, SourceLocation)>,
        /// The value of [`MERGE_KEY`].
        merged: Option<Box<ConfigNode>>,
    },
}

/// Builds a tree from events.
struct TreeBuilder<'a> {
    source: &'a Arc<str>,
    open: Vec<OpenCollection>,
    /// Values by the ID of their anchor, once they are complete.
    anchors: BTreeMap<usize, Subtree>,
    values_left: usize,
    document: Option<ConfigNode>,
}

impl<'a> TreeBuilder<'a> {
    fn new(source: &'a Arc<str>) -> Self {
        let (open, anchors) = (Vec::new(), BTreeMap::new());
        Self { source, open, anchors, values_left: MAX_NODES, document: None }
    }

    fn handle_event(&mut self, event: Event<'_>, position: LineColumn) -> Result<(), String> {
        let place = SourceLocation { source: Arc::clone(self.source), position: Some(position) };
        let expects_key = matches!(
            self.open.last(),
            Some(OpenCollection { inside: CollectionContent::Map { key: None, .. }, .. })
        );
        match event {
            Event::MappingEnd | Event::SequenceEnd => self.close(),
            Event::DocumentStart(_) if self.document.is_some() => {
                Err("there is more than one document".to_owned())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar::value(&text, style == ScalarStyle::Plain, tag.as_deref())?;
                let node = ConfigNode::new(value).with_location(&place);
                let branch = Subtree { node, values: 1, levels: 0 };
                self.store_anchor(anchor, &branch)?;
                match expects_key {
                    true => self.handle_key(branch.node.value, place),
                    false => self.count_values(1).and_then(|()| self.attach(branch)),
                }
            }
            Event::Alias(anchor) => {
                let known =
                    self.anchors.get(&anchor).ok_or("an alias is inside the node that it refers to")?;
                let (values, levels) = (known.values, known.levels);
                if expects_key {
                    return self.handle_key(known.node.value.clone(), place);
                }
                // Checked before the value is copied.
                self.count_values(values)?;
                self.check_depth(levels)?;
                let node = self.anchors[&anchor].node.clone().with_location(&place);
                self.attach(Subtree { node, values, levels })
            }
            Event::MappingStart(..) | Event::SequenceStart(..) if expects_key => Err(KEY_IS_TEXT.to_owned()),
            Event::MappingStart(anchor, tag) => {
                let inside = CollectionContent::Map { map: Map::new(), key: None, merged: None };
                self.begin(inside, anchor, tag.as_deref(), place)
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(CollectionContent::List(Vec::new()), anchor, tag.as_deref(), place)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn count_values(&mut self, values: usize) -> Result<(), String> {
        let left = self.values_left.checked_sub(values);
        self.values_left = left.ok_or_else(|| format!("more than {MAX_NODES} values"))?;
        Ok(())
    }

    /// Checks that another `levels` levels may be nested here.
    fn check_depth(&self, levels: usize) -> Result<(), String> {
        if self.open.len() + levels > MAX_DEPTH { Err(too_deep()) } else { Ok(()) }
    }

    fn begin(
        &mut self,
        inside: CollectionContent,
        anchor: usize,
        tag: Option<&Tag>,
        place: SourceLocation,
    ) -> Result<(), String> {
        check_tag(tag)?;
        self.count_values(1)?;
        self.check_depth(1)?;
        self.open.push(OpenCollection { location: place, anchor, inside, values: 1, levels: 1 });
        Ok(())
    }

    fn handle_key(&mut self, key: ConfigValue, place: SourceLocation) -> Result<(), String> {
        let ConfigValue::Text(text) = key else { return Err(KEY_IS_TEXT.to_owned()) };
        if let Some(OpenCollection { inside: CollectionContent::Map { map, key, merged }, .. }) =
            self.open.last_mut()
        {
            if map.contains_key(&text) || (merged.is_some() && text == MERGE_KEY) {
                return Err(format!("the key {text:?} is given twice in one map"));
            }
            *key = Some((text, place));
        }
        Ok(())
    }

    /// Ends the innermost map or list.
    fn close(&mut self) -> Result<(), String> {
        let Some(OpenCollection { location: place, anchor, inside, values, levels }) = self.open.pop() else {
            return Ok(());
        };
        let value = match inside {
            CollectionContent::List(items) => ConfigValue::List(items),
            CollectionContent::Map { mut map, merged, .. } => {
                apply_merge_key(&mut map, merged)?;
                ConfigValue::Map(map)
            }
        };
        let node =
            ConfigNode { location: Some(place.clone()), key_location: Some(place), ..ConfigNode::new(value) };
        let branch = Subtree { node, values, levels };
        self.store_anchor(anchor, &branch)?;
        self.attach(branch)
    }

    /// Keeps a copy for aliases, and counts it: nested anchors would multiply their contents.
    fn store_anchor(&mut self, anchor: usize, branch: &Subtree) -> Result<(), String> {
        if anchor != 0 {
            self.count_values(branch.values)?;
            self.anchors.insert(anchor, branch.clone());
        }
        Ok(())
    }

    /// Adds a value to the innermost map or list.
    fn attach(&mut self, Subtree { mut node, values, levels }: Subtree) -> Result<(), String> {
        let Some(parent) = self.open.last_mut() else {
            self.document = Some(node);
            return Ok(());
        };
        parent.values += values;
        parent.levels = parent.levels.max(levels + 1);
        match &mut parent.inside {
            CollectionContent::List(items) => items.push(node),
            CollectionContent::Map { map, key, merged } => {
                let (key, key_place) = key.take().ok_or(KEY_IS_TEXT)?;
                node.key_location = Some(key_place);
                if key == MERGE_KEY {
                    *merged = Some(Box::new(node));
                } else {
                    map.insert(key, node);
                }
            }
        }
        Ok(())
    }
}

/// Adds the entries of YAML's `<<`: the map's own entries take precedence, then those of the first source.
fn apply_merge_key(map: &mut Map, merged: Option<Box<ConfigNode>>) -> Result<(), &'static str> {
    let Some(merged) = merged.map(|merged| *merged) else { return Ok(()) };
    let sources = match merged.value {
        ConfigValue::List(items) => items,
        _ => vec![merged],
    };
    for source in sources {
        let ConfigValue::Map(entries) = source.value else {
            return Err("<< takes a map or a list of maps");
        };
        for (key, node) in entries {
            map.entry(key).or_insert(node);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigNode, SyntaxError> {
        parse(text, &Arc::from("f.yaml"))
    }

    /// The values without locations.
    fn plain(text: &str) -> ConfigNode {
        let nowhere = SourceLocation { source: Arc::from("f.yaml"), position: None };
        read(text).unwrap().with_location(&nowhere)
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err().detail
    }

    #[test]
    fn scalars_keep_their_kind() {
        let ConfigValue::List(items) = read("[1, -2, 0.5, true, yes, null, '1', x]").unwrap().value else {
            panic!("a list was written");
        };
        let values: Vec<ConfigValue> = items.into_iter().map(|item| item.value).collect();
        let text = |text: &str| ConfigValue::Text(text.to_owned());
        assert_eq!(
            values,
            [
                ConfigValue::Integer(1),
                ConfigValue::Integer(-2),
                ConfigValue::Float(0.5),
                ConfigValue::Bool(true),
                text("yes"),
                ConfigValue::Null,
                text("1"),
                text("x"),
            ]
        );
    }

    #[test]
    fn an_empty_document_is_null() {
        for text in ["", "\n", "# nothing\n", "---\n", "~"] {
            assert_eq!(read(text).unwrap().value, ConfigValue::Null, "{text:?}");
        }
    }

    #[test]
    fn anchors_are_copied_and_merge_keys_give_way() {
        let tree = plain("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\nboth: {<<: [{x: 7}, *b]}");
        assert_eq!(tree, plain("base: {x: 1, y: 2}\nuse: {x: 1, y: 3}\nboth: {x: 7, y: 2}"));
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused_with_its_line() {
        let error = read("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert!(error.detail.contains("\"a\" is given twice"), "{}", error.detail);
        assert_eq!(error.position, Some((3, 1)));
    }

    #[test]
    fn tags_and_keys_that_are_not_text_are_refused() {
        assert!(refused("a: !secret x").contains("without a tag"), "{}", refused("a: !secret x"));
        assert!(refused("1: x").contains("a key that is text"));
        assert!(refused("[1]: x").contains("a key that is text"));
        assert!(refused("{a: 1}: x").contains("a key that is text"));
        assert!(refused("a: !secret {}").contains("without a tag"));
        assert!(refused("a: 1\n---\nb: 2").contains("more than one document"));
    }

    #[test]
    fn aliases_that_multiply_are_refused_before_they_do() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let alias = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{alias}]\n");
        }
        let detail = refused(&bomb);
        assert!(detail.contains("values") || detail.contains("limit"), "{detail}");
    }

    #[test]
    fn size_and_depth_are_bounded() {
        assert!(refused(&"a".repeat(MAX_BYTES + 1)).contains("longer"));
        assert!(refused(&"[".repeat(MAX_BYTES)).contains("brackets"));
        assert!(refused(&"- ".repeat(100)).contains("nested"));
        let block: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert!(refused(&block).contains("nested"));
    }

    #[test]
    fn an_alias_counts_and_nests_as_what_it_names() {
        let nested = |levels: usize| format!("a: &a {}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&format!("{}\nb: *a", nested(MAX_DEPTH - 1))).is_ok());
        assert!(refused(&format!("{}\nb: [*a]", nested(MAX_DEPTH - 1))).contains("nested"));
        assert!(refused("a: &a [*a]").contains("inside the node that it refers to"));
        assert!(refused("a: *b").contains("unknown anchor"));
        assert_eq!(plain("a: &k key\n*k : 1"), plain("a: key\nkey: 1"));
    }

    #[test]
    fn yamls_own_tags_determine_the_type_of_a_value() {
        let tree =
            plain("[!!str 5, !!int '5', !!float '5', !!bool 'true', !!null 'null', !!seq [], !!map {}]");
        assert_eq!(tree, plain("['5', 5, 5.0, true, null, [], {}]"));
        for text in ["!!int s3cr3t", "!!float s3cr3t", "!!bool s3cr3t", "!!null s3cr3t"] {
            let detail = refused(text);
            assert!(detail.contains("tagged") && !detail.contains("s3cr3t"), "{detail}");
        }
    }

    #[test]
    fn an_error_is_placed_where_it_is() {
        for (text, position) in [
            ("a: 1\nb: [1, 2\n", (3, 1)),
            ("a: 1\n  b: 2\n", (2, 4)),
            ("a:\n  b: !t x\n", (2, 6)),
            ("a:\n  1: x\n", (2, 3)),
            ("a:\n\tb: x\n", (2, 2)),
            ("a: 'x\nb: 2\n", (1, 4)),
        ] {
            assert_eq!(read(text).unwrap_err().position, Some(position), "{text:?}");
        }
    }

    const TEXT: &str = "\
a: &anchor
  b: 1
  list:
  - x
  - {y: 2,
     z: 3}
c: *anchor
d:
  <<: *anchor
  <<<: 0
e: {<<: {f: 1}}
";

    fn step<'a>(node: &'a ConfigNode, key: &str) -> &'a ConfigNode {
        match &node.value {
            ConfigValue::Map(map) => &map[key],
            ConfigValue::List(items) => &items[key.parse::<usize>().unwrap()],
            _ => panic!("{key} is looked up in a scalar"),
        }
    }

    /// The locations of the key and of the value of the node at `path`.
    fn places(path: &[&str]) -> (String, String) {
        let tree = read(TEXT).unwrap();
        let node = path.iter().fold(&tree, |node, key| step(node, key));
        (node.key_location.as_ref().unwrap().to_string(), node.location.as_ref().unwrap().to_string())
    }

    fn expected(key: &str, value: &str) -> (String, String) {
        (format!("f.yaml:{key}"), format!("f.yaml:{value}"))
    }

    #[test]
    fn keys_and_values_have_places_in_block_and_flow_style() {
        assert_eq!(places(&["a", "b"]), expected("2:3", "2:6"));
        assert_eq!(places(&["a", "list", "0"]), expected("4:5", "4:5"));
        assert_eq!(places(&["a", "list", "1", "y"]), expected("5:6", "5:9"));
        assert_eq!(places(&["a", "list", "1", "z"]), expected("6:6", "6:9"));
        assert_eq!(places(&["e", "f"]), expected("11:10", "11:13"));
    }

    #[test]
    fn what_an_alias_brings_is_placed_at_the_alias() {
        assert_eq!(places(&["c"]), expected("7:1", "7:4"));
        assert_eq!(places(&["c", "b"]), expected("7:4", "7:4"));
        assert_eq!(places(&["d", "b"]), expected("9:7", "9:7"));
    }

    #[test]
    fn a_tree_survives_writing_and_reading() {
        let tree = plain("{a: [1, -2, 0.2, 'null', '1.5', 'x: y', ''], b: {c: true, d: null}}");
        assert_eq!(plain(&write(&tree)), tree);
    }
}
