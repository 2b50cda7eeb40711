//! The data of the page: `receiver/page/src/document.ts` is the reader.
//!
//! Tables are stored by [column](columns), to be small; strings are indices in `strings`, of which the first is empty. Tables
//! only grow, so a reader that has a prefix only needs the rest.

mod columns;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use serde::Serialize;
use sidewinder_profile::{Link, StringIndex};

use crate::annotation::{FunctionAssembly, PageFunction, SourceExcerpt};
use crate::category::FrameCategory;
use crate::escape::{escaped, escaped_or_empty};
use crate::names::NameStyle;
use crate::profile::{Profile, ProfileSample, ThreadState};
use crate::tree::{CallTree, TreeFunction};

use self::columns::{ColumnLayout, ColumnValues, Columns};

pub use self::columns::{DocumentError, decode_document};

/// Writes a whole profile, for a page that names functions like this at first.
pub(crate) fn write(
    profile: &Profile,
    names: NameStyle,
    views: PageViews,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut growth = DocumentBuilder::default();
    growth.update(profile, &profile.samples);
    let columns = growth.columns(TableLengths::default(), profile.samples_without_attributes());
    let mut head = growth.head(TableLengths::default(), profile, &columns, None);
    head.full_names = names == NameStyle::Full;
    head.views = views;
    columns.write(&head, out)
}

/// The tables of a document, which grow with its profile.
#[derive(Default, Debug)]
pub struct DocumentBuilder {
    tree: CallTree,
    threads: Vec<ThreadEntry>,
    spans: usize,
    states: Vec<StateStrings>,
}

/// A thread, with its strings as indices in `strings`.
#[derive(Clone, Copy, Debug)]
struct ThreadEntry {
    process: u32,
    pid: u32,
    name: u32,
    tid: u32,
    container: u32,
}

#[derive(Clone, Copy, Debug)]
struct StateStrings {
    state: u32,
    cause: u32,
}

/// The lengths of a document's tables that a reader has: `1.2.3.4.5.6.7` as text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableLengths([usize; 7]);

impl fmt::Display for TableLengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [texts, functions, places, nodes, threads, spans, states] = self.0;
        write!(f, "{texts}.{functions}.{places}.{nodes}.{threads}.{spans}.{states}")
    }
}

/// Why a text is not a valid [`TableLengths`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not seven numbers separated by dots")]
pub struct TableLengthsError;

impl FromStr for TableLengths {
    type Err = TableLengthsError;

    fn from_str(text: &str) -> Result<Self, TableLengthsError> {
        let numbers: Result<Vec<usize>, _> = text.split('.').map(str::parse).collect();
        let numbers = numbers.map_err(|_| TableLengthsError)?;
        numbers.try_into().map(Self).map_err(|_| TableLengthsError)
    }
}

/// The profiles among which a reader can choose; none if there is only this one.
#[derive(Clone, Default, Serialize, Debug)]
pub struct PageViews {
    /// What each is of.
    pub names: Vec<String>,
    /// Which of them this is.
    pub shown: usize,
}

/// Additional data for a reader that follows a live profile.
#[derive(Clone, Serialize, Debug)]
pub struct LiveUpdate {
    /// The next request, at `data/` beside the page.
    pub next: String,
    /// Whether this contains all current data instead of the new part: the reader must discard what it has.
    pub is_whole: bool,
    /// Slices before this one have been evicted.
    pub first_slice: u32,
    /// The number of evicted events.
    pub forgotten: u64,
    /// Whether no more data will follow.
    pub has_ended: bool,
    /// What else can be followed.
    #[serde(skip)]
    pub views: PageViews,
}

impl DocumentBuilder {
    /// Adds the new entries of the profile's tables, and the stacks of these samples of it: [`Self::write_since`] writes no other
    /// samples.
    pub fn update<'a>(&mut self, profile: &Profile, samples: impl IntoIterator<Item = &'a ProfileSample>) {
        self.tree.update(profile, samples);
        let texts = &mut self.tree.strings;
        let mut text = |text: &str| texts.intern(&escaped_or_empty(text)).0;
        let new = profile.threads.iter().skip(self.threads.len()).map(|thread| ThreadEntry {
            process: text(&thread.process),
            pid: thread.pid,
            name: text(&thread.name),
            tid: thread.tid,
            container: text(&thread.container.label()),
        });
        let new: Vec<_> = new.collect();
        self.threads.extend(new);
        let new_states = profile.states.iter().skip(self.states.len());
        let new_states: Vec<_> = new_states
            .map(|ThreadState { state, cause }| StateStrings { state: text(state), cause: text(cause) })
            .collect();
        self.states.extend(new_states);
        self.spans = spans(profile).len();
    }

    /// The approximate memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tree.bytes()
            + self.threads.len() * size_of::<ThreadEntry>()
            + self.states.len() * size_of::<StateStrings>()
    }

    /// The current lengths of the tables.
    #[must_use]
    pub fn lengths(&self) -> TableLengths {
        let CallTree { strings: texts, functions, function_lines: places, nodes, .. } = &self.tree;
        let lengths = [texts.len(), functions.len(), places.values().len(), nodes.len()];
        let [texts, functions, places, nodes] = lengths;
        TableLengths([texts, functions, places, nodes, self.threads.len(), self.spans, self.states.len()])
    }

    /// The function with this number in the document.
    #[must_use]
    pub fn function(&self, number: usize) -> Option<PageFunction> {
        let function = self.tree.functions.get(number)?;
        let text = |index: u32| self.tree.strings.get(StringIndex(index)).to_owned();
        Some(PageFunction { name: text(function.name), binary: text(function.binary) })
    }

    /// Whether the tables are at least this long, so that the reader may have a prefix of them.
    #[must_use]
    pub fn covers(&self, mark: TableLengths) -> bool {
        mark.0.iter().zip(self.lengths().0).all(|(asked, held)| *asked <= held)
    }

    /// Writes the entries of the tables after `since`, with these samples of the profile that was passed to
    /// [`Self::update`].
    ///
    /// # Errors
    ///
    /// Any I/O error of `out`.
    pub fn write_since(
        &self,
        since: TableLengths,
        profile: &Profile,
        samples: impl IntoIterator<Item = ProfileSample>,
        live: Option<LiveUpdate>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let columns = self.columns(since, samples);
        columns.write(&self.head(since, profile, &columns, live), out)
    }

    /// The entries of the tables after `since`.
    fn columns(&self, since: TableLengths, samples: impl IntoIterator<Item = ProfileSample>) -> Columns {
        let TableLengths([_, functions, places, nodes, threads, _, states]) = since;
        let mut columns = Columns::default();
        add_functions(&mut columns, &self.tree, functions);
        add_lines(&mut columns, &self.tree, places);
        let new_nodes = || (0_u32..).zip(self.tree.nodes.all()).skip(nodes);
        columns.add(
            "nodes",
            [
                // The distance to the index of its caller; 0 if it has none.
                (
                    "parent_before",
                    new_nodes()
                        .map(|(number, node)| node.parent.map_or(0, |parent| number.saturating_sub(parent)))
                        .collect(),
                ),
                // The number of function nodes from its own to the last one before it; 0 if it is the first of its own.
                ("again_before", self.tree.function_nodes_back().skip(nodes).collect()),
                ("place", new_nodes().map(|(_, node)| node.label).collect()),
            ],
        );
        let threads = || self.threads.iter().skip(threads);
        columns.add(
            "threads",
            [
                ("process", threads().map(|thread| thread.process).collect()),
                ("pid", threads().map(|thread| thread.pid).collect()),
                ("name", threads().map(|thread| thread.name).collect()),
                ("tid", threads().map(|thread| thread.tid).collect()),
                // Empty if it is in no container.
                ("container", threads().map(|thread| thread.container).collect()),
            ],
        );
        let states = || self.states.iter().skip(states);
        columns.add(
            "states",
            [
                ("state", states().map(|state| state.state).collect()),
                // Empty if there is none.
                ("cause", states().map(|state| state.cause).collect()),
            ],
        );
        self.add_samples(&mut columns, samples);
        columns
    }

    /// Adds samples, in order of slices, except for late ones of a live profile. Those that refer to unknown entries are
    /// omitted.
    fn add_samples(&self, columns: &mut Columns, of: impl IntoIterator<Item = ProfileSample>) {
        let mut values: [ColumnValues; 6] = Default::default();
        for sample in of {
            let Some(node) = self.tree.leaf(sample.stack) else { continue };
            if sample.thread.0 as usize >= self.threads.len() {
                continue;
            }
            let [slice, thread, span, state, leaf, count] = &mut values;
            slice.push(sample.slice);
            thread.push(sample.thread.0);
            span.push(sample.span.0);
            state.push(sample.state.map_or(0, |state| state.0 + 1));
            leaf.push(node);
            count.push(sample.count);
        }
        let [slice, thread, span, state, leaf, count] = values;
        columns.add(
            "samples",
            [
                ("slice", slice),
                ("thread", thread),
                // The index of the span plus one; 0 if there is none.
                ("span", span),
                // The index of the state plus one; 0 if it is unknown.
                ("state", state),
                ("node", leaf),
                ("count", count),
            ],
        );
    }

    /// What is not in columns.
    fn head<'a>(
        &'a self,
        since: TableLengths,
        profile: &'a Profile,
        columns: &'a Columns,
        live: Option<LiveUpdate>,
    ) -> DocumentHead<'a> {
        let TableLengths([texts, .., known_spans, _]) = since;
        let new_spans = || spans(profile).iter().skip(known_spans);
        DocumentHead {
            title: escaped(&profile.title).into_owned(),
            measure: sidewinder_kind::display_of(profile.measure.name()),
            unit: profile.measure.unit(),
            rate_hz: profile.measure.rate_hz(),
            period_ns: profile.measure.period_ns(),
            start_unix_ms: profile
                .start
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            duration_ms: profile.duration.as_millis() as u64,
            slice_ms: profile.slice.as_secs_f64() * 1e3,
            kinds: FrameCategory::ALL
                .iter()
                .map(|kind| CategoryStyle { label: kind.label(), colour: kind.colour() })
                .collect(),
            full_names: false,
            views: live.as_ref().map(|live| live.views.clone()).unwrap_or_default(),
            grouping: if profile.is_per_thread { "thread" } else { "none" },
            strings: self.tree.strings.iter().skip(texts).collect(),
            spans: DocumentSpans {
                trace: new_spans().map(|span| hex::encode(span.trace_id)).collect(),
                span: new_spans().map(|span| hex::encode(span.span_id)).collect(),
            },
            columns: columns.layout(),
            outcomes: outcome_entries(profile),
            parts: profile
                .recordings
                .iter()
                .map(|part| DocumentRecording {
                    name: escaped(&part.name).into_owned(),
                    from: part.slices.start,
                    to: part.slices.end,
                })
                .collect(),
            sources: &profile.annotations.sources,
            assembly: &profile.annotations.assembly,
            serves_code: profile.annotations.are_served || live.is_some(),
            live,
        }
    }
}

/// The spans of a profile: the first link of its dictionary is none.
fn spans(profile: &Profile) -> &[Link] {
    profile.dictionary.links().get(1..).unwrap_or_default()
}

fn add_functions(columns: &mut Columns, tree: &CallTree, since: usize) {
    let new = || tree.functions.iter().skip(since);
    let standard = (0_u32..).zip(&tree.functions).skip(since).filter(|(_, function)| function.is_standard);
    let kind = |function: &TreeFunction| FrameCategory::ALL.iter().position(|kind| *kind == function.kind);
    columns.add(
        "functions",
        [
            ("name", new().map(|function| function.name).collect()),
            // The short form of the name.
            ("short", new().map(|function| function.short).collect()),
            ("binary", new().map(|function| function.binary).collect()),
            ("path", new().map(|function| function.path).collect()),
            // Index in the list of categories.
            ("kind", new().map(|function| kind(function).unwrap_or_default() as u64).collect()),
            // The indices of those that are code of standard libraries.
            ("standard", standard.map(|(number, _)| number).collect()),
        ],
    );
    // The functions that a reader of this many has, and that others which came later gave another short name.
    let known = (0_u32..).zip(tree.functions.iter().take(since));
    let renamed: Vec<_> = known.filter(|(_, function)| function.short_since as usize > since).collect();
    columns.add(
        "renamed",
        [
            ("function", renamed.iter().map(|(number, _)| *number).collect()),
            ("short", renamed.iter().map(|(_, function)| function.short).collect()),
        ],
    );
}

fn add_lines(columns: &mut Columns, tree: &CallTree, since: usize) {
    let new = || (0_u32..).zip(tree.function_lines.values()).skip(since);
    let elsewhere = || new().filter(|(_, line)| line.path != 0);
    columns.add(
        "places",
        [
            ("function", new().map(|(_, line)| line.function).collect()),
            ("line", new().map(|(_, line)| line.line).collect()),
            // The indices of those whose function is inlined there.
            ("inlined", new().filter(|(_, line)| line.is_inlined).map(|(number, _)| number).collect()),
            // The indices of those that are in another file than the rest of their function, and these files.
            ("elsewhere", elsewhere().map(|(number, _)| number).collect()),
            ("path", elsewhere().map(|(_, line)| line.path).collect()),
        ],
    );
}

#[derive(Serialize)]
struct DocumentHead<'a> {
    title: String,
    measure: &'a str,
    unit: &'a str,
    rate_hz: u64,
    period_ns: u64,
    start_unix_ms: u64,
    duration_ms: u64,
    slice_ms: f64,
    kinds: Vec<CategoryStyle>,
    /// Whether names are shown in full at first.
    full_names: bool,
    views: PageViews,
    /// How boxes are grouped at first.
    grouping: &'static str,
    strings: Vec<&'a str>,
    spans: DocumentSpans,
    columns: &'a [ColumnLayout<'static>],
    outcomes: Vec<DocumentOutcome>,
    parts: Vec<DocumentRecording>,
    sources: &'a [SourceExcerpt],
    assembly: &'a [FunctionAssembly],
    /// Whether the server of the page answers requests for more of both.
    serves_code: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<LiveUpdate>,
}

#[derive(Serialize)]
struct CategoryStyle {
    label: &'static str,
    colour: [u8; 3],
}

#[derive(Default, Serialize)]
struct DocumentSpans {
    trace: Vec<String>,
    span: Vec<String>,
}

#[derive(Serialize)]
struct DocumentOutcome {
    name: String,
    count: u64,
    severity: &'static str,
    help: String,
}

#[derive(Serialize)]
struct DocumentRecording {
    name: String,
    from: u32,
    to: u32,
}

fn outcome_entries(profile: &Profile) -> Vec<DocumentOutcome> {
    let outcomes = profile.outcomes.iter().map(|outcome| DocumentOutcome {
        name: escaped(&outcome.name).into_owned(),
        count: outcome.count,
        severity: outcome.severity.label(),
        help: escaped_or_empty(&outcome.help).into_owned(),
    });
    outcomes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{SAMPLE_STACKS, profile, sample, sample_frames};
    use serde_json::{Value, json};

    fn written(
        growth: &DocumentBuilder,
        since: TableLengths,
        profile: &Profile,
        samples: &[ProfileSample],
    ) -> Value {
        let mut out = Vec::new();
        growth.write_since(since, profile, samples.iter().copied(), None, &mut out).unwrap();
        decode_document(&out).unwrap()
    }

    /// Appends the new entries to each column of the tables.
    fn append(to: &mut Value, more: &Value) {
        match (to, more) {
            (Value::Array(to), Value::Array(more)) => to.extend(more.iter().cloned()),
            (Value::Object(to), Value::Object(more)) => {
                for table in
                    ["strings", "functions", "places", "nodes", "threads", "spans", "states", "samples"]
                {
                    let (Some(to), Some(more)) = (to.get_mut(table), more.get(table)) else { continue };
                    match (to, more) {
                        (Value::Object(to), Value::Object(more)) => {
                            to.iter_mut().for_each(|(column, values)| append(values, &more[column]));
                        }
                        (to, more) => append(to, more),
                    }
                }
            }
            _ => unreachable!("tables are columns"),
        }
    }

    /// Gives functions their new short names.
    fn rename(to: &mut Value, more: &Value) {
        let renamed = |column: &str| more["renamed"][column].as_array().unwrap().clone();
        for (function, short) in renamed("function").iter().zip(renamed("short")) {
            to["functions"]["short"][function.as_u64().unwrap() as usize] = short;
        }
    }

    #[test]
    fn instalments_put_together_are_the_whole() {
        let mut frames = sample_frames();
        // Each has the short form of the one before at first.
        for (frame, scope) in frames.iter_mut().zip(["a", "b", "b", "c", "d"]) {
            frame.name = format!("{scope}::shape::Shape::draw(int)");
            frame.frame_type = sidewinder_profile::FrameType::Native;
        }
        // From the root on, the last stack has `a`, `d` and `c`.
        let profile = profile(&frames, &SAMPLE_STACKS);
        let (mut growth, mut together) = (DocumentBuilder::default(), None);
        for stacks in 1..=SAMPLE_STACKS.len() {
            let so_far = crate::profile::tests::profile(&frames, &SAMPLE_STACKS[..stacks]);
            let since = if stacks == 1 { TableLengths::default() } else { growth.lengths() };
            growth.update(&so_far, &so_far.samples);
            let more = written(&growth, since, &so_far, &profile.samples[stacks - 1..stacks]);
            match &mut together {
                None => together = Some(more),
                Some(together) => {
                    append(together, &more);
                    rename(together, &more);
                }
            }
        }
        let (together, whole) =
            (together.unwrap(), written(&growth, TableLengths::default(), &profile, &profile.samples));
        let shorts = |document: &Value| -> Vec<String> {
            let numbers = document["functions"]["short"].as_array().unwrap();
            let text = |number: &Value| &document["strings"][number.as_u64().unwrap() as usize];
            numbers.iter().map(|number| text(number).as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            shorts(&whole),
            [
                "a::shape::Shape::draw",
                "b::shape::Shape::draw",
                "d::shape::Shape::draw",
                "c::shape::Shape::draw"
            ]
        );
        assert_eq!(together, whole);
    }

    #[test]
    fn who_has_everything_is_sent_nothing_again() {
        let profile = sample();
        let mut growth = DocumentBuilder::default();
        growth.update(&profile, &profile.samples);
        let nothing = written(&growth, growth.lengths(), &profile, &[]);
        for table in ["functions", "places", "nodes", "threads", "spans", "states", "samples"] {
            let columns = nothing[table].as_object().unwrap();
            assert!(columns.values().all(|column| *column == json!([])), "{table}: {columns:?}");
        }
        assert_eq!(nothing["strings"], json!([]));
    }

    #[test]
    fn a_mark_is_read_as_it_is_written_and_only_of_what_was() {
        let mut growth = DocumentBuilder::default();
        growth.update(&sample(), &sample().samples);
        let mark = growth.lengths();
        assert_eq!(mark.to_string().parse(), Ok(mark));
        assert!(growth.covers(mark) && growth.covers(TableLengths::default()));
        assert!(!growth.covers(TableLengths([usize::MAX; 7])));
        for text in ["", "1.2.3.4.5.6", "1.2.3.4.5.6.7.8", "1.2.3.4.5.6.-7", "1.2.3.4.5.6.x"] {
            assert_eq!(text.parse::<TableLengths>(), Err(TableLengthsError), "{text}");
        }
    }
}
