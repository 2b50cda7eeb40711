//! The text that `perf script` prints: a line for each sample, its frames below it, leaf first, and an empty line.
//!
//! ```text
//! server 4711/4712 [003] 56105.284558:    2000000 cpu-clock:
//!             113f push+0x16 (inlined)
//!             113f work+0x16 (/usr/bin/server)
//!     7f76c24f2ad7 [unknown] ([unknown])
//! ```
//!
//! The names of threads and functions may contain spaces. Without a call chain, the frame is on the first line.

use std::collections::HashMap;

use sidewinder_profile::{LocationIndex, MappingIndex, Marker};

use super::error::ReadError;
use super::perf::{KERNEL, PerfFrame, PerfProfile, PerfThread, UNKNOWN};
use crate::profile::Profile;

/// The end of the lines of calls that were inlined into the next frame.
const INLINED: &str = " (inlined)";
/// The width of an address, filled with spaces, before a name.
const ADDRESS_WIDTH: usize = 16;
/// The most frames of a sample that are shown, and what stands for the others. The kernel's own limit is lower by default.
const FRAMES_MAX: usize = 1 << 16;
const TOO_DEEP: &str = "more than 65536 frames";
/// The longest line that can start a sample: it has the name of a thread and of an event, or the arguments of a tracepoint.
const SAMPLE_BYTES_MAX: usize = 1 << 16;
/// The most lines in which the first sample is looked for.
const GUESSED_LINES_MAX: usize = 100;

/// Whether a text is perf's: its first line that is no comment starts a sample at a time, or one of which the next line is a frame.
pub(super) fn is_script(text: &str) -> bool {
    let mut lines = text.lines().take(GUESSED_LINES_MAX).filter(|line| !is_ignored(line));
    let first = lines.next().and_then(parse_sample);
    first.is_some_and(|sample| {
        sample.time_ns.is_some()
            || lines.next().is_some_and(|line| line.starts_with('\t') && parse_frame(line).is_some())
    })
}

/// Reads the samples of one event into a profile.
pub(super) fn read(profile: PerfProfile, text: &str) -> Result<Profile, ReadError> {
    let mut reader = ScriptReader {
        profile,
        locations: HashMap::new(),
        mappings: HashMap::new(),
        sample: None,
        stack: Vec::new(),
        is_cut: false,
    };
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            reader.end_sample();
        } else if !is_ignored(line) && !reader.line(line) {
            return Err(ReadError::NoSample { line: number });
        }
    }
    reader.end_sample();
    reader.profile.finish()
}

fn is_ignored(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

struct ScriptReader<'a> {
    profile: PerfProfile,
    /// By the frames at each, the innermost first.
    locations: HashMap<Vec<PerfFrame<'a>>, LocationIndex>,
    /// By path.
    mappings: HashMap<&'a str, MappingIndex>,
    /// The sample whose frames follow.
    sample: Option<SampleLine<'a>>,
    /// Its frames so far, leaf first.
    stack: Vec<ScriptFrame<'a>>,
    /// Whether it has more than are held.
    is_cut: bool,
}

impl<'a> ScriptReader<'a> {
    /// Reads a line that is not empty. Returns whether it is one of perf's.
    fn line(&mut self, line: &'a str) -> bool {
        let is_indented = line.starts_with([' ', '\t']);
        let sample = parse_sample(line);
        // perf used to align names of threads to the right.
        if let Some(sample) = sample.filter(|sample| !is_indented || sample.time_ns.is_some()) {
            self.end_sample();
            // Not a sample, but another record: of lost samples, of a mapping.
            if sample.rest.starts_with("PERF_RECORD_") {
                return true;
            }
            // Without a call chain, the only frame is here, and otherwise what an event of a tracepoint says.
            let frame =
                parse_frame(sample.rest).filter(|frame| frame.address != 0 && sample.rest.ends_with(')'));
            self.stack.extend(frame);
            self.sample = Some(sample);
            return true;
        }
        if !is_indented {
            return false;
        }
        let is_full = self.stack.len() >= FRAMES_MAX;
        match (source_line(line), self.stack.last_mut()) {
            (Some(source), Some(frame)) => frame.source = source,
            _ if is_full => self.is_cut = true,
            _ => self.stack.extend(parse_frame(line)),
        }
        true
    }

    fn end_sample(&mut self) {
        let stack = std::mem::take(&mut self.stack);
        let is_cut = std::mem::take(&mut self.is_cut);
        let Some(sample) = self.sample.take().filter(|sample| self.profile.selects(sample.event)) else {
            return;
        };
        let is_outermost = |line: &ScriptFrame<'_>| line.file.is_some();
        let calls = stack.split_inclusive(is_outermost);
        let mut locations: Vec<_> = calls.map(|calls| self.location(calls)).collect();
        if is_cut {
            locations.push(self.profile.dictionary.add_marker(&Marker::truncated(TOO_DEEP)));
        }
        self.profile.add(sample.thread, sample.time_ns, sample.period, &locations);
    }

    /// The location of calls, of which the last contains the others.
    fn location(&mut self, calls: &[ScriptFrame<'a>]) -> LocationIndex {
        // An inlined call's file is the one of the function that it was inlined into.
        let file = calls.last().and_then(|outermost| outermost.file).unwrap_or_default();
        let calls = calls.iter().copied();
        let frames =
            calls.map(|ScriptFrame { address, name, source, .. }| PerfFrame { address, name, file, source });
        let frames: Vec<_> = frames.collect();
        if let Some(index) = self.locations.get(&frames) {
            return *index;
        }
        let mapping = match file {
            "" => MappingIndex::default(),
            file => *self.mappings.entry(file).or_insert_with(|| self.profile.dictionary.add_file(file)),
        };
        let location = self.profile.location(&frames, mapping);
        self.locations.insert(frames, location);
        location
    }
}

/// The line that starts a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
struct SampleLine<'a> {
    thread: PerfThread<'a>,
    time_ns: Option<u64>,
    period: Option<u64>,
    /// Empty if it is not printed.
    event: &'a str,
    /// What follows the event.
    rest: &'a str,
}

/// Parses `NAME PID [CPU] TIME: PERIOD EVENT: REST`, of which only the name and a number are always there: `TID`, or `PID/TID`.
fn parse_sample(line: &str) -> Option<SampleLine<'_>> {
    if line.len() > SAMPLE_BYTES_MAX {
        return None;
    }
    let words: Vec<_> = words(line).collect();
    let (number_at, time_ns, rest_at) = find_time(&words).or_else(|| find_number(&words))?;
    let (pid, tid) = parse_thread_number(words[number_at].1)?;
    let name = line[..words[number_at].0].trim();
    let rest_words = words.get(rest_at..).unwrap_or_default();
    let (period, event, rest_words) = match rest_words {
        [(_, period), (_, event), rest @ ..] if is_number(period) && event.ends_with(':') => {
            (period.parse().ok(), *event, rest)
        }
        [(_, event), rest @ ..] if event.ends_with(':') => (None, *event, rest),
        rest => (None, "", rest),
    };
    let rest = rest_words.first().map_or("", |(start, _)| line[*start..].trim_end());
    let event = event.strip_suffix(':').unwrap_or_default();
    Some(SampleLine { thread: PerfThread { name, pid, tid }, time_ns, period, event, rest })
}

/// The words of a line, with their positions.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    line.split(char::is_whitespace).filter_map(move |word| {
        let start = at;
        at += word.len() + line[at + word.len()..].chars().next().map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((start, word))
    })
}

/// The positions of the number of a thread, and of what follows the time behind it, with that time.
fn find_time(words: &[(usize, &str)]) -> Option<(usize, Option<u64>, usize)> {
    let (at, time_ns) = (2..words.len()).find_map(|at| Some((at, parse_time(words[at].1)?)))?;
    let number_at = if is_cpu(words[at - 1].1) { at - 2 } else { at - 1 };
    let is_thread = number_at > 0 && parse_thread_number(words[number_at].1).is_some();
    is_thread.then_some((number_at, Some(time_ns), at + 1))
}

/// The same for a line without a time: the first number that nothing, or the period or the name of an event follows.
fn find_number(words: &[(usize, &str)]) -> Option<(usize, Option<u64>, usize)> {
    (1..words.len()).find_map(|at| {
        parse_thread_number(words[at].1)?;
        let rest_at = at + 1 + usize::from(words.get(at + 1).is_some_and(|(_, word)| is_cpu(word)));
        let follows = match words.get(rest_at..).unwrap_or_default() {
            [] => true,
            [(_, period), (_, event), ..] if is_number(period) => event.ends_with(':'),
            [(_, event), ..] => event.ends_with(':'),
        };
        follows.then_some((at, None, rest_at))
    })
}

/// `[CPU]`.
fn is_cpu(word: &str) -> bool {
    word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).is_some_and(is_number)
}

/// `TID`, whose process is not known, or `PID/TID`. The kernel's idle task has no positive number.
fn parse_thread_number(word: &str) -> Option<(u32, u32)> {
    let number = |word: &str| if word == "-1" { Some(0) } else { word.parse::<u32>().ok() };
    match word.split_once('/') {
        Some((pid, tid)) => Some((number(pid)?, number(tid)?)),
        None => Some((0, number(word)?)),
    }
}

/// `SECONDS.FRACTION:` in nanoseconds.
fn parse_time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    if !is_number(fraction) || fraction.len() > 9 || !is_number(seconds) {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let seconds_ns = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    seconds_ns.checked_add(fraction.parse::<u64>().ok()? * scale)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A frame's line.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ScriptFrame<'a> {
    address: u64,
    name: &'a str,
    /// Empty if unknown; `None`: it was inlined into the next frame.
    file: Option<&'a str>,
    source: (&'a str, u32),
}

/// Parses `ADDRESS NAME+0xOFFSET (FILE)`, of which the address, the offset or the file may be missing.
fn parse_frame<'a>(line: &'a str) -> Option<ScriptFrame<'a>> {
    let text = line.trim();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    // Names such as `add` have hexadecimal digits only, but addresses are aligned.
    let filled = line.strip_prefix('\t').unwrap_or(line).len() - line.trim_start().len() + word.len();
    let is_address = filled >= ADDRESS_WIDTH || word.len() > 8 || !line.starts_with('\t');
    let address = u64::from_str_radix(word, 16).ok().filter(|_| is_address && !word.starts_with('+'));
    let text = if address.is_some() { rest.trim_start() } else { text };
    let (name, file) = match text.strip_suffix(INLINED) {
        Some(name) => (name, None),
        None => split_file(text).map_or((text, Some("")), |(name, file)| (name, Some(file))),
    };
    let name = match name.rsplit_once("+0x") {
        Some((name, offset)) if u64::from_str_radix(offset, 16).is_ok() => name,
        _ => name,
    };
    let known = |text: &'a str| match text {
        UNKNOWN => "",
        _ if text.starts_with("[kernel.") => KERNEL,
        text => text,
    };
    let address = address.unwrap_or(0);
    if address == 0 && name.is_empty() {
        return None;
    }
    let file = file.map(|file| known(file.strip_suffix(" (deleted)").unwrap_or(file)));
    Some(ScriptFrame { address, name: known(name), file, source: ("", 0) })
}

/// Splits `NAME (FILE)`. Both may contain parentheses.
fn split_file(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_suffix(')')?;
    let offset_end = text.match_indices("+0x").find_map(|(at, _)| {
        let digits = text[at + 3..].find(|digit: char| !digit.is_ascii_hexdigit())?;
        text[at + 3 + digits..].starts_with(" (").then_some(at + 3 + digits)
    });
    let at = offset_end
        .or_else(|| text.starts_with("[unknown] (").then_some(UNKNOWN.len()))
        .or_else(|| text.find(" (/"))
        .or_else(|| text.find(" (["))
        .or_else(|| text.rfind(" ("));
    match at {
        Some(at) => Some((&text[..at], &text[at + 2..])),
        None => text.strip_prefix('(').map(|file| ("", file)),
    }
}

/// The path and line of the source of the frame above: `  PATH:LINE`.
fn source_line(line: &str) -> Option<(&str, u32)> {
    let (path, number) = line.strip_prefix("  ")?.rsplit_once(':')?;
    let path = path.trim_start();
    let number = number.parse().ok()?;
    (!path.is_empty() && !path.contains(" (")).then_some(if path == "??" { ("", 0) } else { (path, number) })
}

#[cfg(test)]
mod tests;
