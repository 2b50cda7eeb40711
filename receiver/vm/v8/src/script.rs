//! The scripts of functions: their paths, where their lines end, and the sources that they were made of.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;
use sidewinder_vm_runtime::line_ends::{LineEnds, LineScanner};
use sidewinder_vm_runtime::recent::{MemorySize, Recent};
use sidewinder_vm_runtime::source_map::{
    NotLoaded, OriginalPosition, ScriptContent, ScriptKey, SourceMap, SourceMaps,
};

use super::text::{Characters, Heap, Object, TaggedWord};

/// The longest path or URL that is kept, in bytes.
pub(super) const PATH_BYTES_MAX: usize = 4 << 10;
/// Characters of a source in which lines are counted. Lines behind them are unknown.
const SOURCE_MAX: usize = 16 << 20;
/// Ends of lines that are read at once.
const ENDS_CHUNK: usize = 4096;
/// The sources of a process whose lines are kept, and their memory.
const SCRIPTS_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const SCRIPTS_BYTES_MAX: usize = 1 << 20;
/// Characters before the parameters of a function among which its name is looked for.
const BEFORE_MAX: u32 = 256;
/// What may be between a name and the parameters of the function or of the constructor, and how much of that at most.
const BETWEEN: [&str; 9] = ["(", "=", ":", "*", "{", "function", "async", "class", "constructor"];
const TOKENS_MAX: usize = 8;

/// The text of a script, as one function needs it.
pub(super) struct Script {
    object: Object,
    pub(super) text: Arc<ScriptText>,
    /// What is added to lines.
    line_offset: i32,
    /// `None`: it has no source map that is used.
    map: Option<Arc<SourceMap>>,
}

/// What is known of the text of a script.
#[derive(Debug)]
pub(super) struct ScriptText {
    /// Its path or URL; empty if it has none.
    pub(super) path: Arc<str>,
    ends: LineEnds,
    /// `None`: it can't be read, or has more lines than are kept.
    content: Option<ScriptContent>,
}

impl MemorySize for ScriptText {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.path.len() + self.ends.bytes()
    }
}

/// Where a function begins.
pub(super) struct FunctionStart {
    /// The path or URL of the script, or that of its source by its source map.
    pub(super) path: Arc<str>,
    /// The line there, counted from 1; 0 if it is unknown.
    pub(super) line: u32,
    /// The name there, where the source map has another one.
    pub(super) name: Option<Box<str>>,
}

impl Script {
    /// The line of a position, counted from 1; 0 if it is unknown.
    fn line_of(&self, position: i32) -> u32 {
        let line = u32::try_from(position).ok().and_then(|position| self.text.ends.line_of(position));
        let line = line.and_then(|line| line.checked_add_signed(self.line_offset)?.checked_add(1));
        line.unwrap_or(0)
    }

    /// The position in its source of a position in the script, if its map has that.
    fn original(&self, position: i32) -> Option<OriginalPosition<'_>> {
        let (line, column) = self.text.ends.place_of(u32::try_from(position).ok()?)?;
        self.map.as_ref()?.find(line, column)
    }

    /// The start of a function with a name and a position.
    pub(super) fn start_of(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        name: &str,
        position: i32,
    ) -> FunctionStart {
        let Some(original) = self.original(position) else {
            return FunctionStart {
                path: Arc::clone(&self.text.path),
                line: self.line_of(position),
                name: None,
            };
        };
        // If the text can't be read now, the function keeps the name that it has in the script.
        let at = self.position_of_name(heap, name, position).unwrap_or_default();
        let at_name = at.and_then(|at| self.original(at)).filter(|found| found.source == original.source);
        FunctionStart {
            path: Arc::clone(original.source),
            line: original.line,
            name: at_name.and_then(|found| found.name).map(Box::from),
        }
    }

    /// Where the name of a function is, before the position of its parameters.
    fn position_of_name(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        name: &str,
        position: i32,
    ) -> Result<Option<i32>, FunctionError> {
        let Ok(end) = u32::try_from(position) else { return Ok(None) };
        // Others are of V8's own making, as `get length` or `Module._load`.
        if !name.chars().all(is_identifier) {
            return Ok(None);
        }
        let source = heap.value(self.object, heap.layout.source)?.object()?;
        let start = end.saturating_sub(BEFORE_MAX);
        let units = heap.units(source, start..end)?;
        let at = find_name(&units, name).and_then(|at| start.checked_add(u32::try_from(at).ok()?));
        Ok(at.map(u32::cast_signed))
    }

    /// The line of a position of a function that has this path, counted from 1; 0 if it is unknown, or in another source.
    pub(super) fn line_in(&self, path: &str, position: i32) -> u32 {
        match self.original(position) {
            Some(found) if **found.source == *path => found.line,
            _ if *path == *self.text.path => self.line_of(position),
            _ => 0,
        }
    }
}

/// Finds the name of a function at the end of what precedes its parameters: a declaration, a method, or what the function or
/// class is assigned to. Returns its index.
fn find_name(before: &[u16], name: &str) -> Option<usize> {
    let ends_with = |text: &[u16], word: &str| {
        let start = text.len().checked_sub(word.encode_utf16().count())?;
        let is_same = text.get(start..)?.iter().copied().eq(word.encode_utf16());
        let is_in_word = word.starts_with(is_identifier) && {
            let last = start.checked_sub(1).and_then(|last| text.get(last)).copied();
            last.is_some_and(|last| char::from_u32(last.into()).is_none_or(is_identifier))
        };
        (is_same && !is_in_word).then_some(start)
    };
    let mut rest = before;
    for _ in 0..TOKENS_MAX {
        let spaces = rest.iter().rev().take_while(|unit| matches!(**unit, 0x09..=0x0d | 0x20)).count();
        rest = rest.get(..rest.len() - spaces)?;
        if let Some(start) = ends_with(rest, name) {
            return Some(start);
        }
        let token = BETWEEN.iter().find_map(|token| ends_with(rest, token))?;
        rest = rest.get(..token)?;
    }
    None
}

fn is_identifier(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '\u{200c}' | '\u{200d}')
}

/// The path or URL of a source; empty if it has none.
fn read_path(heap: &Heap<'_, impl ForeignMemory>, script: Object) -> Result<String, FunctionError> {
    match heap.value(script, heap.layout.source_name)? {
        TaggedWord::Object(name) if heap.is_string(name)? => heap.text(name, PATH_BYTES_MAX),
        _ => Ok(String::new()),
    }
}

/// The texts of a process's scripts, as far as they were needed last: by the object of the script, and its number.
#[derive(Debug)]
pub(super) struct Scripts {
    texts: Recent<(Object, i32), ScriptText>,
    maps: OnceLock<Arc<dyn SourceMaps>>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { texts: Recent::new(SCRIPTS_MAX, SCRIPTS_BYTES_MAX), maps: OnceLock::new() }
    }
}

impl Scripts {
    /// From now on, positions are those in the sources that scripts were made of. Only the first call counts.
    pub(super) fn set_maps(&self, maps: Arc<dyn SourceMaps>) {
        let _is_first = self.maps.set(maps);
    }

    /// Reads the script at an object, which has a number.
    pub(super) fn read(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        script: Object,
        id: i32,
    ) -> Result<Script, FunctionError> {
        let line_offset = heap.value(script, heap.layout.line_offset)?.number().unwrap_or(0);
        let text = match self.texts.get(&(script, id)) {
            Some(text) => text,
            None => self.texts.add((script, id), read_text(heap, script)?),
        };
        let map = match (self.maps.get(), text.content) {
            // A part of a page has no map of its own.
            (Some(maps), Some(content)) if line_offset == 0 && !text.path.is_empty() => {
                let key = ScriptKey { path: Arc::clone(&text.path), content };
                maps.find(&key).map_err(|NotLoaded| FunctionError::SourceMapNotLoaded)?
            }
            _ => None,
        };
        Ok(Script { object: script, text, line_offset, map })
    }
}

fn read_text(heap: &Heap<'_, impl ForeignMemory>, script: Object) -> Result<ScriptText, FunctionError> {
    let ends = read_ends(heap, script)?;
    let source = heap.value(script, heap.layout.source)?.object().ok();
    let source = source.filter(|source| heap.is_string(*source).unwrap_or(false));
    let content = source.and_then(|source| ScriptContent::new(heap.length(source).ok()?, &ends));
    Ok(ScriptText { path: read_path(heap, script)?.into(), ends, content })
}

/// The ends of a script's lines: V8 knows them once it needed them.
fn read_ends(heap: &Heap<'_, impl ForeignMemory>, script: Object) -> Result<LineEnds, FunctionError> {
    if let TaggedWord::Object(array) = heap.value(script, heap.layout.line_ends)?
        && heap.type_of(array)? == heap.layout.array_type
    {
        return read_array(heap, array);
    }
    let source = heap.value(script, heap.layout.source)?.object()?;
    if !heap.is_string(source)? {
        return Ok(LineEnds::default());
    }
    let (mut scanner, mut characters) = (LineScanner::default(), 0);
    heap.read_string(source, SOURCE_MAX, |piece| {
        characters += match piece {
            Characters::OneByte(bytes) => bytes.len(),
            Characters::TwoByte(bytes) => bytes.len() / 2,
        };
        scan(&mut scanner, &piece)
    })?;
    Ok(scanner.finish(characters < SOURCE_MAX))
}

/// A `FixedArray` of numbers.
fn read_array(heap: &Heap<'_, impl ForeignMemory>, array: Object) -> Result<LineEnds, FunctionError> {
    let count = heap.value(array, 8)?.number().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    // A line has a character at least, in the sources whose lines are counted.
    let (mut ends, count) = (Vec::new(), count.min(SOURCE_MAX / 16));
    let mut bytes = vec![0; 8 * count.min(ENDS_CHUNK)];
    while ends.len() < count {
        let chunk = bytes.get_mut(..8 * (count - ends.len()).min(ENDS_CHUNK)).unwrap_or_default();
        heap.memory.read_exact(array.address(16 + 8 * ends.len() as u64)?, chunk)?;
        let words = chunk.as_chunks().0.iter();
        ends.extend(words.map(|word| (u64::from_le_bytes(*word) >> 32) as u32));
    }
    Ok(LineEnds::from_ends(ends))
}

/// Adds a piece of a source to those whose lines are looked for; false if no more are wanted.
fn scan(scanner: &mut LineScanner, characters: &Characters<'_>) -> bool {
    match characters {
        Characters::OneByte(bytes) => bytes.iter().all(|byte| scanner.character(u16::from(*byte))),
        Characters::TwoByte(bytes) => {
            bytes.as_chunks().0.iter().all(|unit| scanner.character(u16::from_le_bytes(*unit)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_function_precedes_its_parameters() {
        let find = |before: &str, name: &str| {
            let units: Vec<u16> = before.encode_utf16().collect();
            find_name(&units, name)
        };
        assert_eq!(find("var a=1;function ab", "ab"), Some(17));
        assert_eq!(find("function* ab ", "ab"), Some(10));
        assert_eq!(find("let größe = async ", "größe"), Some(4));
        assert_eq!(find("x={ab:async function*", "ab"), Some(3));
        assert_eq!(find(",ab=class{constructor", "ab"), Some(1));
        assert_eq!(find("ab = (", "ab"), Some(0));
        for other in ["", "cab=", "$ab=", "ab=c", "ab||", "ab=b||(", "function", "async function abc"] {
            assert_eq!(find(other, "ab"), None, "{other}");
        }
    }
}
