//! Locations in code, and the functions and lines at each of them.

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
