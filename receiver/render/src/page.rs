//! A page with a flame graph, a table of functions and the outcomes, in one file that needs no network.
//!
//! The data are JSON inside a `script` element that is no script, in which `<`, `>` and `&` are written as escapes,
//! so no name can end the element. The page shows names as text only.

use std::io::{self, BufWriter, Write};
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::escape::visible;
use crate::profile::{FrameKind, Profile, Severity};
use crate::tree::Tree;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Writes the page.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let tree = Tree::new(profile);
    let mut rest = PAGE;
    while let Some((before, (name, after))) =
        rest.split_once("{{").and_then(|(before, tail)| Some((before, tail.split_once("}}")?)))
    {
        out.write_all(before.as_bytes())?;
        match name {
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            "title" => out.write_all(text(&visible(&profile.title)).as_bytes())?,
            "data" => {
                // The serializer writes bit by bit.
                let mut json = BufWriter::new(ScriptSafe(&mut *out));
                serde_json::to_writer(&mut json, &data(profile, &tree))?;
                json.flush()?;
            }
            other => out.write_all(other.as_bytes())?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// The text with the characters of markup written as references.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Writes JSON in which the characters of markup, which occur only within strings, are escapes.
struct ScriptSafe<W>(W);

impl<W: Write> Write for ScriptSafe<W> {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        for part in json.split_inclusive(|byte| matches!(byte, b'<' | b'>' | b'&')) {
            let (plain, escape): (_, &[u8]) = match part {
                [plain @ .., b'<'] => (plain, b"\\u003c"),
                [plain @ .., b'>'] => (plain, b"\\u003e"),
                [plain @ .., b'&'] => (plain, b"\\u0026"),
                plain => (plain, b""),
            };
            self.0.write_all(plain)?;
            self.0.write_all(escape)?;
        }
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What the script reads. Tables are columns, to be small.
#[derive(Serialize)]
struct Data<'a> {
    title: String,
    measure: &'a str,
    rate_hz: u64,
    period_ns: u64,
    start_unix_ms: u64,
    duration_ms: u64,
    kinds: Vec<Kind>,
    labels: Labels,
    nodes: Nodes,
    outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
struct Kind {
    label: &'static str,
    colour: [u8; 3],
}

#[derive(Serialize)]
struct Labels {
    name: Vec<String>,
    binary: Vec<String>,
    /// Index in the kinds; -1 for a process.
    kind: Vec<i8>,
}

#[derive(Serialize)]
struct Nodes {
    depth: Vec<u32>,
    label: Vec<u32>,
    own: Vec<u64>,
}

#[derive(Serialize)]
struct Outcome {
    name: String,
    count: u64,
    severity: &'static str,
    help: String,
}

fn data<'a>(profile: &'a Profile, tree: &Tree<'_>) -> Data<'a> {
    let kind_index = |kind: Option<FrameKind>| {
        kind.and_then(|kind| FrameKind::ALL.iter().position(|other| *other == kind))
            .map_or(-1, |index| index as i8)
    };
    let shown_or_nothing =
        |text: &str| if text.is_empty() { String::new() } else { visible(text).into_owned() };
    Data {
        title: visible(&profile.title).into_owned(),
        measure: &profile.measure.name,
        rate_hz: profile.measure.rate_hz,
        period_ns: profile.measure.period_ns,
        start_unix_ms: profile.start.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        duration_ms: profile.duration.as_millis() as u64,
        kinds: FrameKind::ALL
            .iter()
            .map(|kind| Kind { label: kind.label(), colour: kind.colour() })
            .collect(),
        labels: Labels {
            name: tree.labels.iter().map(|label| visible(label.name).into_owned()).collect(),
            binary: tree.labels.iter().map(|label| shown_or_nothing(label.binary)).collect(),
            kind: tree.labels.iter().map(|label| kind_index(label.kind)).collect(),
        },
        nodes: Nodes {
            depth: tree.nodes.iter().map(|node| node.depth).collect(),
            label: tree.nodes.iter().map(|node| node.label).collect(),
            own: tree.nodes.iter().map(|node| node.own).collect(),
        },
        outcomes: profile
            .outcomes
            .iter()
            .map(|outcome| Outcome {
                name: visible(&outcome.name).into_owned(),
                count: outcome.count,
                severity: match outcome.severity {
                    Severity::Complete => "complete",
                    Severity::Aside => "aside",
                    Severity::Cut => "cut",
                    Severity::Lost => "lost",
                },
                help: shown_or_nothing(&outcome.help),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};
    use proptest::prelude::*;

    fn page(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn data_of(page: &str) -> serde_json::Value {
        let (_, tail) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
        serde_json::from_str(tail.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_is_small_and_asks_nobody_for_anything() {
        let page = page(&sample());
        assert!(page.len() < 60_000, "{} bytes", page.len());
        assert!(page.contains("default-src 'none'"));
        for reference in ["http://", "https://", " src=", "@import", "url(", "fetch("] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert!(!page.contains("{{"));
    }

    #[test]
    fn the_data_hold_every_event_and_every_outcome() {
        let data = data_of(&page(&sample()));
        let own: u64 = data["nodes"]["own"].as_array().unwrap().iter().map(|own| own.as_u64().unwrap()).sum();
        assert_eq!(own, 14);
        assert_eq!(data["outcomes"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn a_title_is_text() {
        let mut profile = sample();
        profile.title = String::from("</title><script>alert(1)</script>");
        assert!(!page(&profile).contains("<script>alert"));
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_data(name in "(</script|<!--|]]>|&lt;|\\{\\{script\\}\\}|.){0,20}") {
            let page = page(&one_stack(&[&name]));
            prop_assert_eq!(&data_of(&page)["labels"]["name"][0], &*visible(&name));
            prop_assert_eq!(page.matches("</script").count(), 2);
        }
    }
}
