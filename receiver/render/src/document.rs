//! What the page shows, as JSON: `receiver/page/src/document.ts` has the other side.
//!
//! Tables are columns, to be small; texts are positions in `strings`, of which the first is empty. Tables only grow, so
//! that whoever has a part needs only the rest.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::escape::{hexadecimal, visible, visible_or_nothing};
use crate::profile::{FrameKind, Profile, Sample, Thread};
use crate::tree::Tree;

/// Writes all of a profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut growth = Growth::default();
    growth.grow(profile);
    let mut samples = profile.samples.clone();
    samples.sort_unstable();
    growth.write(Mark::default(), profile, samples, None, out)
}

/// The tables of a document, which grow with its profile.
#[derive(Default, Debug)]
pub struct Growth {
    tree: Tree,
    /// Numbers of texts.
    threads: Vec<ThreadTexts>,
    spans: usize,
}

#[derive(Clone, Copy, Debug)]
struct ThreadTexts {
    process: u32,
    name: u32,
    container: u32,
}

/// How long the tables of a document are that somebody has: `1.2.3.4.5.6` as text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mark([usize; 6]);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [texts, functions, places, nodes, threads, spans] = self.0;
        write!(f, "{texts}.{functions}.{places}.{nodes}.{threads}.{spans}")
    }
}

/// Why a text is no mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not six numbers with dots between them")]
pub struct MarkError;

impl FromStr for Mark {
    type Err = MarkError;

    fn from_str(text: &str) -> Result<Self, MarkError> {
        let numbers: Result<Vec<usize>, _> = text.split('.').map(str::parse).collect();
        let numbers = numbers.map_err(|_| MarkError)?;
        numbers.try_into().map(Self).map_err(|_| MarkError)
    }
}

/// What somebody who follows a profile has to know besides.
#[derive(Clone, Serialize, Debug)]
pub struct Instalment {
    /// What to ask for next, at `data/` beside the page.
    pub next: String,
    /// Whether this is all that is held, not what is new: what was told before is void.
    pub is_whole: bool,
    /// Slices before this one are held no longer.
    pub first_slice: u32,
    /// Events that were held and are no longer.
    pub forgotten: u64,
    /// Whether nothing more will come.
    pub has_ended: bool,
}

impl Growth {
    /// Takes in what the profile's tables have more of than the last time. Samples are left to [`Self::write`].
    pub fn grow(&mut self, profile: &Profile) {
        self.tree.grow(profile);
        let texts = &mut self.tree.texts;
        let mut text = |text: &str| texts.number(&visible_or_nothing(text));
        let new = profile.threads.iter().skip(self.threads.len()).map(|thread| ThreadTexts {
            process: text(&thread.process),
            name: text(&thread.name),
            container: text(&thread.container),
        });
        let new: Vec<_> = new.collect();
        self.threads.extend(new);
        self.spans = profile.spans.len();
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.threads.len() * size_of::<ThreadTexts>()
    }

    /// How long the tables are now.
    #[must_use]
    pub fn mark(&self) -> Mark {
        let Tree { texts, functions, places, nodes, .. } = &self.tree;
        let lengths = [texts.all().len(), functions.len(), places.all.len(), nodes.all.len()];
        let [texts, functions, places, nodes] = lengths;
        Mark([texts, functions, places, nodes, self.threads.len(), self.spans])
    }

    /// Whether the tables were ever as short as that: whoever says so has the beginning of them.
    #[must_use]
    pub fn holds(&self, mark: Mark) -> bool {
        mark.0.iter().zip(self.mark().0).all(|(asked, held)| *asked <= held)
    }

    /// Writes what the tables have more of than at `since`, with these samples of the profile that was taken in.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(
        &self,
        since: Mark,
        profile: &Profile,
        samples: impl IntoIterator<Item = Sample>,
        live: Option<Instalment>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let document = self.document(since, profile, samples, live);
        serde_json::to_writer(out, &document).map_err(io::Error::from)
    }

    fn document<'a>(
        &'a self,
        since: Mark,
        profile: &'a Profile,
        samples: impl IntoIterator<Item = Sample>,
        live: Option<Instalment>,
    ) -> Document<'a> {
        let Mark([texts, functions, places, nodes, threads, spans]) = since;
        let tree = &self.tree;
        Document {
            title: visible(&profile.title).into_owned(),
            measure: sidewinder_kind::display_of(&profile.measure.name),
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
            strings: tree.texts.all().iter().skip(texts).map(|text| &**text).collect(),
            functions: functions_since(tree, functions),
            places: Places {
                function: tree.places.all.iter().skip(places).map(|place| place.function).collect(),
                line: tree.places.all.iter().skip(places).map(|place| place.line).collect(),
            },
            nodes: Nodes {
                parent_before: (0..)
                    .zip(&tree.nodes.all)
                    .skip(nodes)
                    .map(|(number, node)| node.parent.map_or(0, |parent| number - parent))
                    .collect(),
                place: tree.nodes.all.iter().skip(nodes).map(|node| node.place).collect(),
            },
            threads: threads_since(&profile.threads, &self.threads, threads),
            spans: Spans {
                trace: profile.spans.iter().skip(spans).map(|span| hexadecimal(&span.trace_id)).collect(),
                span: profile.spans.iter().skip(spans).map(|span| hexadecimal(&span.span_id)).collect(),
            },
            samples: self.samples(samples),
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
            live,
        }
    }

    /// Samples of things that are not there are left out.
    fn samples(&self, of: impl IntoIterator<Item = Sample>) -> Samples {
        let mut samples = Samples::default();
        for sample in of {
            let Some(&node) = self.tree.leaves.get(sample.stack.0 as usize) else { continue };
            if sample.thread.0 as usize >= self.threads.len() {
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
}

fn functions_since(tree: &Tree, since: usize) -> Functions {
    let mut functions = Functions::default();
    for function in tree.functions.iter().skip(since) {
        functions.name.push(function.name);
        functions.binary.push(function.binary);
        functions.path.push(function.path);
        let kind = FrameKind::ALL.iter().position(|kind| *kind == function.kind);
        functions.kind.push(kind.unwrap_or_default() as u8);
    }
    functions
}

fn threads_since(of: &[Thread], texts: &[ThreadTexts], since: usize) -> Threads {
    let mut threads = Threads::default();
    for (thread, texts) in of.iter().zip(texts).skip(since) {
        threads.process.push(texts.process);
        threads.pid.push(thread.pid);
        threads.name.push(texts.name);
        threads.tid.push(thread.tid);
        threads.container.push(texts.container);
    }
    threads
}

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
    strings: Vec<&'a str>,
    functions: Functions,
    places: Places,
    nodes: Nodes,
    threads: Threads,
    spans: Spans,
    samples: Samples,
    outcomes: Vec<Outcome>,
    parts: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<Instalment>,
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
    /// Empty: it is in none.
    container: Vec<u32>,
}

#[derive(Default, Serialize)]
struct Spans {
    trace: Vec<String>,
    span: Vec<String>,
}

/// In the order of their slices, but for what came late to somebody who follows.
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
    use super::*;
    use crate::profile::tests::sample;
    use serde_json::{Value, json};

    fn written(growth: &Growth, since: Mark, profile: &Profile, samples: &[Sample]) -> Value {
        let mut out = Vec::new();
        growth.write(since, profile, samples.iter().copied(), None, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// Appends each column of the tables.
    fn append(to: &mut Value, more: &Value) {
        match (to, more) {
            (Value::Array(to), Value::Array(more)) => to.extend(more.iter().cloned()),
            (Value::Object(to), Value::Object(more)) => {
                for table in ["strings", "functions", "places", "nodes", "threads", "spans", "samples"] {
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

    #[test]
    fn instalments_put_together_are_the_whole() {
        let profile = sample();
        let (mut growth, mut together) = (Growth::default(), None);
        for stacks in 1..=profile.stacks.len() {
            let mut so_far = profile.clone();
            so_far.stacks.truncate(stacks);
            so_far.frames.truncate(stacks + 1);
            let since = if stacks == 1 { Mark::default() } else { growth.mark() };
            growth.grow(&so_far);
            let more = written(&growth, since, &so_far, &profile.samples[stacks - 1..stacks]);
            match &mut together {
                None => together = Some(more),
                Some(together) => append(together, &more),
            }
        }
        assert_eq!(together.unwrap(), written(&growth, Mark::default(), &profile, &profile.samples));
    }

    #[test]
    fn who_has_everything_is_sent_nothing_again() {
        let profile = sample();
        let mut growth = Growth::default();
        growth.grow(&profile);
        let nothing = written(&growth, growth.mark(), &profile, &[]);
        for table in ["functions", "places", "nodes", "threads", "spans", "samples"] {
            let columns = nothing[table].as_object().unwrap();
            assert!(columns.values().all(|column| *column == json!([])), "{table}: {columns:?}");
        }
        assert_eq!(nothing["strings"], json!([]));
    }

    #[test]
    fn a_mark_is_read_as_it_is_written_and_only_of_what_was() {
        let mut growth = Growth::default();
        growth.grow(&sample());
        let mark = growth.mark();
        assert_eq!(mark.to_string().parse(), Ok(mark));
        assert!(growth.holds(mark) && growth.holds(Mark::default()));
        assert!(!growth.holds(Mark([usize::MAX; 6])));
        for text in ["", "1.2.3.4.5", "1.2.3.4.5.6.7", "1.2.3.4.5.-6", "1.2.3.4.5.x"] {
            assert_eq!(text.parse::<Mark>(), Err(MarkError), "{text}");
        }
    }
}
