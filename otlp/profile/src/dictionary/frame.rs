//! The frames at a location.

use std::borrow::Cow;

use super::location::{Function, Line, Location};
use super::mapping::Mapping;
use crate::dictionary::Dictionary;
use crate::frame_type::FrameType;
use crate::index::{FrameIndex, FunctionIndex, MappingIndex};
use crate::marker::Marker;
use crate::table::Index as _;

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
    fn new(dictionary: &'a Dictionary, location: Location<'a>, position: usize) -> Option<Self> {
        let line = *location.lines.get(position)?;
        Some(Self { dictionary, location, line, is_inlined: position + 1 < location.lines.len() })
    }

    /// A frame about which nothing is known.
    fn unknown(dictionary: &'a Dictionary) -> Self {
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

impl Dictionary {
    /// A frame.
    #[must_use]
    pub fn frame(&self, index: FrameIndex) -> Option<Frame<'_>> {
        let location = *self.locations_of_frames.get(index.position())?;
        let entry = self.locations.get(location)?;
        let position = index.0.checked_sub(entry.frames.start)?;
        Frame::new(self, self.location_in(entry), position as usize)
    }

    /// All frames, in the order of their indices.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame<'_>> + DoubleEndedIterator {
        let unknown = Frame::unknown(self);
        (0..self.lines.len() as u32).map(move |index| self.frame(FrameIndex(index)).unwrap_or(unknown))
    }
}
