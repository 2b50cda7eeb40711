//! A page with everything to look at a profile by, in one file that needs no network.
//!
//! The page is built from `receiver/page`; `receiver/page/src/document.ts` has the other side of [`Document`]. What is
//! shown is JSON, compressed and written in base64: no name can end the element that holds it.

use std::io::{self, BufWriter, Write};
use std::time::UNIX_EPOCH;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::escape::{hexadecimal, visible, visible_or_nothing};
use crate::profile::{FrameKind, Profile};
use crate::tree::{Numbered, Tree};

/// The page as it was built, with a place for the document.
const PAGE: &str = include_str!("../../page/page.html");
const PLACE: &str = "{{document}}";

/// Writes the page.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(PLACE).unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    let mut base64 = EncoderWriter::new(&mut *out, &STANDARD);
    let gzip = GzEncoder::new(&mut base64, Compression::default());
    // The serializer writes bit by bit.
    let mut json = BufWriter::new(gzip);
    serde_json::to_writer(&mut json, &Document::of(profile))?;
    json.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    base64.finish()?;
    drop(base64);
    out.write_all(after.as_bytes())
}

/// What the page reads. Tables are columns, to be small; texts are positions in `strings`, of which the first is empty.
#[derive(Serialize)]
struct Document<'a> {
    title: String,
    measure: &'a str,
    rate_hz: u64,
    period_ns: u64,
    start_unix_ms: u64,
    duration_ms: u64,
    slice_ms: f64,
    kinds: Vec<Kind>,
    strings: Vec<String>,
    functions: Functions,
    places: Places,
    nodes: Nodes,
    threads: Threads,
    spans: Spans,
    samples: Samples,
    outcomes: Vec<Outcome>,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Kind {
    label: &'static str,
    colour: [u8; 3],
}

#[derive(Default, Serialize)]
struct Functions {
    name: Vec<u32>,
    binary: Vec<u32>,
    path: Vec<u32>,
    /// Index in the kinds.
    kind: Vec<u8>,
}

#[derive(Default, Serialize)]
struct Places {
    function: Vec<u32>,
    line: Vec<u32>,
}

#[derive(Default, Serialize)]
struct Nodes {
    /// How many nodes before this one its caller is; 0: it has none.
    parent_before: Vec<u32>,
    place: Vec<u32>,
}

#[derive(Default, Serialize)]
struct Threads {
    process: Vec<u32>,
    pid: Vec<u32>,
    name: Vec<u32>,
    tid: Vec<u32>,
}

#[derive(Default, Serialize)]
struct Spans {
    trace: Vec<String>,
    span: Vec<String>,
}

/// In the order of their slices.
#[derive(Default, Serialize)]
struct Samples {
    slice: Vec<u32>,
    thread: Vec<u32>,
    /// One more than the index of the span; 0: none.
    span: Vec<u32>,
    node: Vec<u32>,
    count: Vec<u64>,
}

#[derive(Serialize)]
struct Outcome {
    name: String,
    count: u64,
    severity: &'static str,
    help: String,
}

#[derive(Serialize)]
struct Part {
    name: String,
    from: u32,
    to: u32,
}

impl<'a> Document<'a> {
    fn of(profile: &'a Profile) -> Self {
        let tree = Tree::new(profile);
        let mut texts = Numbered::default();
        let mut text = |name: &str| texts.number(visible_or_nothing(name).into_owned());
        text("");
        let mut functions = Functions::default();
        for function in &tree.functions {
            functions.name.push(text(&visible(function.name)));
            functions.binary.push(text(function.binary));
            functions.path.push(text(function.path));
            let kind = FrameKind::ALL.iter().position(|kind| *kind == function.kind);
            functions.kind.push(kind.unwrap_or_default() as u8);
        }
        let mut threads = Threads::default();
        for thread in &profile.threads {
            threads.process.push(text(&thread.process));
            threads.pid.push(thread.pid);
            threads.name.push(text(&thread.name));
            threads.tid.push(thread.tid);
        }
        Self {
            title: visible(&profile.title).into_owned(),
            measure: &profile.measure.name,
            rate_hz: profile.measure.rate_hz,
            period_ns: profile.measure.period_ns,
            start_unix_ms: profile
                .start
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            duration_ms: profile.duration.as_millis() as u64,
            slice_ms: profile.slice.as_secs_f64() * 1e3,
            kinds: FrameKind::ALL
                .iter()
                .map(|kind| Kind { label: kind.label(), colour: kind.colour() })
                .collect(),
            strings: texts.all,
            functions,
            places: Places {
                function: tree.places.iter().map(|place| place.function).collect(),
                line: tree.places.iter().map(|place| place.line).collect(),
            },
            nodes: Nodes {
                parent_before: (0..)
                    .zip(&tree.nodes)
                    .map(|(number, node)| node.parent.map_or(0, |parent| number - parent))
                    .collect(),
                place: tree.nodes.iter().map(|node| node.place).collect(),
            },
            threads,
            spans: Spans {
                trace: profile.spans.iter().map(|span| hexadecimal(&span.trace_id)).collect(),
                span: profile.spans.iter().map(|span| hexadecimal(&span.span_id)).collect(),
            },
            samples: samples(profile, &tree),
            outcomes: outcomes(profile),
            parts: profile
                .parts
                .iter()
                .map(|part| Part {
                    name: visible(&part.name).into_owned(),
                    from: part.slices.start,
                    to: part.slices.end,
                })
                .collect(),
        }
    }
}

/// Samples of things that are not there are left out.
fn samples(profile: &Profile, tree: &Tree<'_>) -> Samples {
    let mut sorted = profile.samples.clone();
    sorted.sort_unstable();
    let mut samples = Samples::default();
    for sample in sorted {
        let Some(&node) = tree.leaves.get(sample.stack.0 as usize) else { continue };
        if profile.thread_of(&sample).is_none() {
            continue;
        }
        samples.slice.push(sample.slice);
        samples.thread.push(sample.thread.0);
        samples.span.push(sample.span.map_or(0, |span| span.0 + 1));
        samples.node.push(node);
        samples.count.push(sample.count);
    }
    samples
}

fn outcomes(profile: &Profile) -> Vec<Outcome> {
    let outcomes = profile.outcomes.iter().map(|outcome| Outcome {
        name: visible(&outcome.name).into_owned(),
        count: outcome.count,
        severity: outcome.severity.label(),
        help: visible_or_nothing(&outcome.help).into_owned(),
    });
    outcomes.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::profile::tests::{one_stack, sample};
    use base64::Engine as _;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    fn page(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn document_of(page: &str) -> serde_json::Value {
        let (before, after) = PAGE.split_once(PLACE).unwrap();
        let base64 = page.strip_prefix(before).unwrap().strip_suffix(after).unwrap();
        let mut json = String::new();
        GzDecoder::new(&*STANDARD.decode(base64).unwrap()).read_to_string(&mut json).unwrap();
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn the_page_is_small_and_asks_nobody_for_anything() {
        let page = page(&sample());
        assert!(page.len() < 300_000, "{} bytes", page.len());
        assert!(page.contains("default-src 'none'"));
        for reference in [" src=", "@import", "url(", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_document_holds_every_event_and_every_outcome() {
        let document = document_of(&page(&sample()));
        let sum = |column: &serde_json::Value| -> u64 {
            column.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
        };
        assert_eq!(sum(&document["samples"]["count"]), 14);
        assert_eq!(document["outcomes"].as_array().unwrap().len(), 4);
        assert_eq!(document["nodes"]["parent_before"], serde_json::json!([0, 1, 1, 3, 1]));
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_document(name in "(</script|<!--|]]>|&lt;|\\{\\{document\\}\\}|.){0,20}") {
            let document = document_of(&page(&one_stack(&[&name])));
            let number = document["functions"]["name"][0].as_u64().unwrap() as usize;
            prop_assert_eq!(&document["strings"][number], &*visible(&name));
        }
    }
}
