//! The sources of functions: their names, and where their lines end.

use std::num::NonZeroUsize;
use std::sync::Arc;

use sidewinder_process::ForeignMemory;

use super::lines::{LineEnds, LineScanner};
use super::recent::Recent;
use super::text::{Heap, Object, TaggedWord};
use crate::cpython::FunctionError;

/// The longest path or URL that is kept, in bytes.
const PATH_BYTES_MAX: usize = 4 << 10;
/// Characters of a source in which lines are counted. Lines behind them are unknown.
const SOURCE_MAX: usize = 16 << 20;
/// Ends of lines that are read at once.
const ENDS_CHUNK: usize = 4096;
/// The sources of a process whose lines are kept, and their memory.
const SCRIPTS_MAX: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const SCRIPTS_BYTES_MAX: usize = 1 << 20;

/// The lines of a source, as one function needs them.
pub(super) struct ScriptLines {
    ends: Arc<LineEnds>,
    offset: i32,
}

impl ScriptLines {
    /// The line of a position, counted from 1; 0 if it is unknown.
    pub(super) fn line_of(&self, position: i32) -> u32 {
        let line = u32::try_from(position).ok().and_then(|position| self.ends.line_of(position));
        let line = line.and_then(|line| line.checked_add_signed(self.offset)?.checked_add(1));
        line.unwrap_or(0)
    }
}

/// The path or URL of a source; empty if it has none.
pub(super) fn read_path(
    heap: &Heap<'_, impl ForeignMemory>,
    script: Object,
) -> Result<String, FunctionError> {
    match heap.value(script, heap.layout.source_name)? {
        TaggedWord::Object(name) if heap.is_string(name)? => heap.text(name, PATH_BYTES_MAX),
        _ => Ok(String::new()),
    }
}

/// Where the lines of a process's sources end, as far as they were needed last: by the object of the source, and its number.
#[derive(Debug)]
pub(super) struct Scripts(Recent<(Object, i32), LineEnds>);

impl Default for Scripts {
    fn default() -> Self {
        Self(Recent::new(SCRIPTS_MAX, SCRIPTS_BYTES_MAX))
    }
}

impl Scripts {
    /// Reads the lines of the script at an object, which has a number.
    pub(super) fn lines(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        script: Object,
        id: i32,
    ) -> Result<ScriptLines, FunctionError> {
        let offset = heap.value(script, heap.layout.line_offset)?.number().unwrap_or(0);
        let ends = match self.0.get(&(script, id)) {
            Some(ends) => ends,
            None => self.0.add((script, id), read_ends(heap, script)?),
        };
        Ok(ScriptLines { ends, offset })
    }
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
            super::text::Characters::OneByte(bytes) => bytes.len(),
            super::text::Characters::TwoByte(bytes) => bytes.len() / 2,
        };
        scanner.add(&piece)
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
