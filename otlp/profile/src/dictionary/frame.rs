//! Locations, and the frames at each of them.

use std::borrow::Cow;

use crate::dictionary::{Dictionary, Mapping};
use crate::frame_type::FrameType;
use crate::index::{FunctionIndex, MappingIndex, StringIndex};
use crate::marker::Marker;

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Function {
    /// The readable name.
    pub name: StringIndex,
    /// The linker name, if it is different.
    pub system_name: StringIndex,
    /// The source file.
    pub filename: StringIndex,
    /// The line where it starts, from 1; 0 if unknown.
    pub start_line: u32,
}

/// A position in the source code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Line {
    /// The function.
    pub function: FunctionIndex,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
}

impl Line {
    /// An unknown line of a function.
    #[must_use]
    pub const fn new(function: FunctionIndex) -> Self {
        Self { function, line: 0, column: 0 }
    }
}

/// A position in the source code, in texts: empty ones and 0 are unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SourceLine<'a> {
    /// The readable name of the function.
    pub function: &'a str,
    /// Its linker name.
    pub system_name: &'a str,
    /// The source file.
    pub path: &'a str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// A location in code, or what stands for missing code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Location<'a> {
    /// The mapping that contains `address`, if a file backs it.
    pub mapping: MappingIndex,
    /// Within the mapping's memory; 0 if unknown. In frames other than the leaf, it may be inside the call instruction.
    pub address: u64,
    /// The language or runtime.
    pub frame_type: FrameType,
    /// Whether a process generated the code at run time, if the type doesn't say by which runtime.
    pub is_generated: bool,
    /// Whether nothing proves that this is the caller of the previous location.
    pub is_guessed: bool,
    /// Whether the name in `lines` only describes the location, such as `libc.so.6+0x1234`.
    pub is_unnamed: bool,
    /// What the location stands for if the name is words of the profiler in brackets, and not from the target.
    pub marker: Option<&'a Marker>,
    /// The function at `address` comes last, preceded by the functions inlined into it, innermost first. One line of an unknown
    /// function if nothing is known.
    pub lines: &'a [Line],
}

/// A function at a location: the one that contains its address, or one that is inlined there.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    dictionary: &'a Dictionary,
    /// The location.
    pub location: Location<'a>,
    /// The function and the position in its source.
    pub line: Line,
    /// Whether the call is inlined into the next frame of the location.
    pub is_inlined: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn new(dictionary: &'a Dictionary, location: Location<'a>, position: usize) -> Option<Self> {
        let line = *location.lines.get(position)?;
        Some(Self { dictionary, location, line, is_inlined: position + 1 < location.lines.len() })
    }

    /// A frame of which nothing is known.
    pub(super) fn unknown(dictionary: &'a Dictionary) -> Self {
        Self { dictionary, location: Location::default(), line: Line::default(), is_inlined: false }
    }

    fn function(&self) -> Function {
        self.dictionary.function(self.line.function)
    }

    /// The function's name in its source, or the words of a marker; if it has no name, a description of the location.
    #[must_use]
    pub fn name(&self) -> Cow<'a, str> {
        if let Some(label) = self.location.marker.and_then(Marker::label) {
            return Cow::Owned(label);
        }
        match self.dictionary.string(self.function().name) {
            "" => Cow::Owned(self.dictionary.description(&self.location)),
            name => Cow::Borrowed(name),
        }
    }

    /// Whether [`name`](Self::name) is the name of a function, or words of the profiler.
    #[must_use]
    pub fn is_named(&self) -> bool {
        let is_labelled = || matches!(self.location.marker, Some(Marker::Truncated(_) | Marker::Lock(_)));
        !self.location.is_unnamed && (self.line.function != FunctionIndex::default() || is_labelled())
    }

    /// The name that the function has in its source; empty if unknown.
    #[must_use]
    pub fn function_name(&self) -> &'a str {
        self.dictionary.string(self.function().name)
    }

    /// The function's linker symbol; empty if it is the name.
    #[must_use]
    pub fn system_name(&self) -> &'a str {
        self.dictionary.string(self.function().system_name)
    }

    /// The source file; empty if unknown.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.dictionary.string(self.function().filename)
    }

    /// The mapping, if a file backs the location.
    #[must_use]
    pub fn mapping(&self) -> Option<Mapping> {
        (self.location.mapping != MappingIndex::default())
            .then(|| self.dictionary.mapping(self.location.mapping))
    }

    /// The path of the file that contains the code; empty if there is none.
    #[must_use]
    pub fn binary_path(&self) -> &'a str {
        self.dictionary.binary_path(&self.location)
    }

    /// The last component of this path; empty if there is none.
    #[must_use]
    pub fn file_name(&self) -> &'a str {
        self.binary_path().rsplit('/').next().unwrap_or_default()
    }

    /// Whether it stands for a lock.
    #[must_use]
    pub fn is_lock(&self) -> bool {
        matches!(self.location.marker, Some(Marker::Lock(_)))
    }

    /// Whether it is code of the kernel, or stands for some.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.location.frame_type == FrameType::Kernel
    }
}
