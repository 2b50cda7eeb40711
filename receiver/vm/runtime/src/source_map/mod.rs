//! Source maps: which position of a source a position in a script comes from (ECMA-426, version 3 of the format).
//!
//! - [`ScriptFile`] is what a script's file says: which text it is, and where its source map is.
//! - [`SourceMap`] is a map, read from a file or from the script itself in memory that is bounded.
//! - [`SourceMaps`] is where an engine gets the maps of its scripts.
//!
//! Maps belong to untrusted processes: whatever they contain, the result is a map or an error.

mod cache;
mod error;
mod json;
mod mappings;
mod script_file;
mod url;

use std::fmt::Debug;
use std::io::BufRead;
use std::sync::Arc;

pub use self::cache::SourceMapCache;
pub use self::error::SourceMapError;
use self::json::JsonReader;
use self::mappings::Mappings;
pub use self::script_file::{MapLocation, ScriptContent, ScriptFile};
pub use self::url::{Reference, folder_of, script_path};
use crate::recent::MemorySize;

/// The longest path or name that a map may contain, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The version of the format.
const VERSION: u32 = 3;

/// A script of a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScriptKey {
    /// Its path or URL.
    pub path: Arc<str>,
    /// Its text.
    pub content: ScriptContent,
}

/// A map that has not been read so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotLoaded;

/// Where an engine gets the maps of its scripts.
pub trait SourceMaps: Debug + Send + Sync {
    /// The map of a script, if it has one that can be used.
    ///
    /// # Errors
    /// If that is not known so far. It will be.
    fn find(&self, script: &ScriptKey) -> Result<Option<Arc<SourceMap>>, NotLoaded>;
}

/// A source map.
#[derive(Debug)]
pub struct SourceMap {
    /// At least one, in the order of their positions.
    sections: Vec<Section>,
}

/// The map of a part of a script, up to the next one.
#[derive(Debug)]
struct Section {
    /// Where the part begins in the script.
    line: u32,
    column: u32,
    mappings: Mappings,
    /// Paths or URLs; `None`: the source has no name.
    sources: Box<[Option<Arc<str>>]>,
    names: Box<[Box<str>]>,
}

/// A position in a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginalPosition<'map> {
    /// The path or the URL of the source.
    pub source: &'map Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 0, in units of UTF-16.
    pub column: u32,
    /// The name in the source of what begins at exactly this position in the script.
    pub name: Option<&'map str>,
}

impl SourceMap {
    /// Reads a map whose sources are relative to a folder. It takes at most so many bytes of memory, as does reading it.
    ///
    /// # Errors
    /// See [`SourceMapError`].
    pub fn read(input: impl BufRead, folder: &str, bytes_max: usize) -> Result<Self, SourceMapError> {
        let mut json = JsonReader::new(input);
        json.skip_guard()?;
        let mut room = MemoryRoom(bytes_max);
        let mut parts = MapParts::default();
        let mut sections: Option<Vec<Section>> = None;
        json.object(|json, key| match key {
            "sections" => {
                sections = Some(read_sections(json, folder, &mut room)?);
                Ok(())
            }
            _ => parts.read_value(json, key, &mut room),
        })?;
        let sections = match sections {
            Some(sections) => {
                parts.check_version()?;
                sections
            }
            None => vec![parts.finish(folder, (0, 0), &mut room)?],
        };
        Ok(Self { sections })
    }

    /// The position in its source of a position in the script: both from 0, the column in units of UTF-16. `None` if the map
    /// says nothing about it, or that it has none.
    #[must_use]
    pub fn find(&self, line: u32, column: u32) -> Option<OriginalPosition<'_>> {
        let is_before = |section: &Section| (section.line, section.column) <= (line, column);
        let section = self.sections.get(self.sections.partition_point(is_before).checked_sub(1)?)?;
        // In the first line of a section, columns count from its beginning.
        let first = if line == section.line { section.column } else { 0 };
        let (line, column) = (line - section.line, column - first);
        let found = section.mappings.find(line, column).filter(|found| found.has_source)?;
        let has_name = found.has_name && found.column == column;
        Some(OriginalPosition {
            source: section.sources.get(found.source as usize)?.as_ref()?,
            line: found.original_line.checked_add(1)?,
            column: found.original_column,
            name: section.names.get(found.name as usize).filter(|_| has_name).map(|name| &**name),
        })
    }
}

impl MemorySize for SourceMap {
    fn bytes(&self) -> usize {
        let of_section = |section: &Section| {
            let sources =
                section.sources.iter().flatten().map(|source| source.len() + 2 * size_of::<usize>());
            let names = section.names.iter().map(|name| name.len());
            size_of::<Section>()
                + section.mappings.heap_bytes()
                + size_of_val(&*section.sources)
                + size_of_val(&*section.names)
                + sources.chain(names).sum::<usize>()
        };
        self.sections.iter().map(of_section).sum()
    }
}

/// The memory that is left.
struct MemoryRoom(usize);

impl MemoryRoom {
    fn take(&mut self, bytes: usize) -> Result<(), SourceMapError> {
        self.0 = self.0.checked_sub(bytes).ok_or(SourceMapError::TooBig)?;
        Ok(())
    }
}

/// A map, or that of a section, in the making.
#[derive(Default)]
struct MapParts {
    version: u32,
    source_root: String,
    sources: Vec<Option<String>>,
    names: Vec<Box<str>>,
    mappings: Option<String>,
}

impl MapParts {
    fn read_value<R: BufRead>(
        &mut self,
        json: &mut JsonReader<R>,
        key: &str,
        room: &mut MemoryRoom,
    ) -> Result<(), SourceMapError> {
        match key {
            "version" => self.version = json.number()?,
            "sourceRoot" => self.source_root = json.optional_string(TEXT_BYTES_MAX)?.unwrap_or_default(),
            "sources" => {
                let sources = &mut self.sources;
                sources.clear();
                json.array(|json| {
                    let source = json.optional_string(TEXT_BYTES_MAX)?;
                    let bytes = source.as_ref().map_or(0, String::len);
                    room.take(size_of::<Option<String>>() + bytes)?;
                    sources.push(source);
                    Ok(())
                })?;
            }
            "names" => {
                let names = &mut self.names;
                names.clear();
                json.array(|json| {
                    let name = json.optional_string(TEXT_BYTES_MAX)?.unwrap_or_default();
                    room.take(size_of::<Box<str>>() + name.len())?;
                    names.push(name.into());
                    Ok(())
                })?;
            }
            "mappings" => {
                // Its checkpoints take less than a tenth of it.
                let text = json.string(room.0)?;
                room.take(text.len() + text.len() / 8)?;
                self.mappings = Some(text);
            }
            _ => json.skip()?,
        }
        Ok(())
    }

    fn check_version(&self) -> Result<(), SourceMapError> {
        if self.version == VERSION { Ok(()) } else { Err(SourceMapError::Malformed("not version 3")) }
    }

    fn finish(
        self,
        folder: &str,
        (line, column): (u32, u32),
        room: &mut MemoryRoom,
    ) -> Result<Section, SourceMapError> {
        self.check_version()?;
        let mappings = self.mappings.ok_or(SourceMapError::Malformed("no mappings"))?;
        let mappings = Mappings::new(mappings, self.sources.len(), self.names.len())?;
        let root = self.source_root.trim_end_matches('/');
        let mut sources = Vec::with_capacity(self.sources.len());
        for source in self.sources {
            let source = source.map(|source| match &*self.source_root {
                "" => Reference::resolve(&source, folder),
                _ => Reference::resolve(&format!("{root}/{source}"), folder),
            });
            let source = source.map(|source| Arc::from(source.into_text()));
            room.take(source.as_ref().map_or(0, |source: &Arc<str>| source.len()))?;
            sources.push(source);
        }
        Ok(Section { line, column, mappings, sources: sources.into(), names: self.names.into() })
    }
}

/// Reads the sections of a map that has several maps, one after the other.
fn read_sections<R: BufRead>(
    json: &mut JsonReader<R>,
    folder: &str,
    room: &mut MemoryRoom,
) -> Result<Vec<Section>, SourceMapError> {
    let mut sections: Vec<Section> = Vec::new();
    json.array(|json| {
        let (mut place, mut parts) = (None, None);
        json.object(|json, key| match key {
            "offset" => {
                let (mut line, mut column) = (0, 0);
                json.object(|json, key| {
                    match key {
                        "line" => line = json.number()?,
                        "column" => column = json.number()?,
                        _ => json.skip()?,
                    }
                    Ok(())
                })?;
                place = Some((line, column));
                Ok(())
            }
            "map" => {
                let mut read = MapParts::default();
                json.object(|json, key| read.read_value(json, key, room))?;
                parts = Some(read);
                Ok(())
            }
            _ => json.skip(),
        })?;
        let (Some(place), Some(parts)) = (place, parts) else {
            return Err(SourceMapError::Malformed("a section without a map"));
        };
        room.take(size_of::<Section>())?;
        let section = parts.finish(folder, place, room)?;
        if sections.last().is_some_and(|last| (last.line, last.column) > place) {
            return Err(SourceMapError::Malformed("sections that are not in order"));
        }
        sections.push(section);
        Ok(())
    })?;
    Ok(sections)
}

#[cfg(test)]
mod tests;
