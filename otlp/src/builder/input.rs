//! What a caller describes to a builder: frames, functions, mappings, samples, and the indices that it gets for them.

use sidewinder_kind::Kind;

use crate::attribute::{FrameType, Value};

macro_rules! indices {
    ($($(#[$meta:meta])* $name:ident,)*) => { $(
        $(#[$meta])*
        ///
        /// Good for the builder that gave it, from one report to the next.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(super) i32);
    )* };
}

indices! {
    /// A resource of a builder.
    ResourceIndex,
    /// A mapping of a builder.
    MappingIndex,
    /// A function of a builder.
    FunctionIndex,
    /// A location of a builder.
    LocationIndex,
    /// A stack of a builder.
    StackIndex,
    /// A set of sample attributes of a builder.
    AttributeSetIndex,
}

impl AttributeSetIndex {
    /// The set without any attribute.
    pub const EMPTY: Self = Self(0);
}

/// What identifies the file of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MappingBuildIds<'a> {
    /// In hexadecimal digits: the first 16 bytes of SHA-256 over the first 4096 bytes of the file,
    /// its last 4096 bytes and its length as a big-endian `u64`.
    pub htlhash: &'a str,
    /// The GNU build ID in hexadecimal digits.
    pub gnu: Option<&'a str>,
    /// The Go build ID.
    pub go: Option<&'a str>,
}

/// A stretch of a file in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mapping<'a> {
    /// The address of its first byte. Below `memory_limit`, or both are 0 where it has none.
    pub memory_start: u64,
    /// The address after its last byte.
    pub memory_limit: u64,
    /// Where its first byte is in the file.
    pub file_offset: u64,
    /// The name of the file.
    pub filename: &'a str,
    /// What identifies the file.
    pub build_ids: MappingBuildIds<'a>,
}

/// A function, of which at least one name is known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Function<'a> {
    /// The name for people.
    pub name: &'a str,
    /// The name for the linker, where it differs.
    pub system_name: &'a str,
    /// The source file.
    pub filename: &'a str,
    /// The line where it starts, from 1; 0 where unknown.
    pub start_line: u32,
}

/// A place in the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// The function.
    pub function: FunctionIndex,
    /// From 1; 0 where unknown.
    pub line: u32,
    /// From 1; 0 where unknown.
    pub column: u32,
}

impl Line {
    /// Somewhere in `function`.
    #[must_use]
    pub const fn new(function: FunctionIndex) -> Self {
        Self { function, line: 0, column: 0 }
    }
}

/// One frame of a stack: a `Location` on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackFrame<'a> {
    /// The mapping that holds `address`, if a file backs it.
    pub mapping: Option<MappingIndex>,
    /// Within the mapping's memory. May lie within the call for all frames but the leaf.
    pub address: u64,
    /// The language or runtime.
    pub frame_type: FrameType,
    /// Whether nothing proves that this is the caller of the frame before it.
    pub is_guessed: bool,
    /// The function at `address`, preceded by those that were inlined into it, innermost first.
    pub lines: &'a [Line],
}

/// What is said about each event of a sample. Each part can be left out, as receivers may make a
/// series of every different set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampleAttributes<'a> {
    /// The thread, as numbered in the namespace of the report.
    pub thread_id: Option<i64>,
    /// The name of the thread.
    pub thread_name: Option<&'a str>,
    /// The logical number of the CPU.
    pub cpu: Option<u32>,
    /// Why the stack is not complete; `None` where it is.
    pub outcome: Option<&'a str>,
    /// Others, of bounded variety. None of a key that has a field here.
    pub extra: &'a [(&'a str, Value<'a>)],
}

/// The span that was active.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Not all zero.
    pub trace_id: [u8; 16],
    /// Not all zero.
    pub span_id: [u8; 8],
}

/// What events have in common that become one sample: all but their time and value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SampleIdentity {
    /// Whose events they are.
    pub resource: ResourceIndex,
    /// What the events are.
    pub kind: Kind,
    /// Where they happened.
    pub stack: StackIndex,
    /// What else is said about them.
    pub attributes: AttributeSetIndex,
    /// The span that was active.
    pub link: Option<Link>,
}
