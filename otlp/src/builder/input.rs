//! The input of a builder: frames, functions, mappings and samples, and the indices that it returns for them.

use sidewinder_kind::{Kind, KindDescriptor, SampleShape};
use sidewinder_profile::{FrameType, SampleType};

use crate::attribute::Value;

macro_rules! indices {
    ($($(#[$meta:meta])* $name:ident,)*) => { $(
        $(#[$meta])*
        ///
        /// Valid for the builder that returned it, also for later reports.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(super) i32);
    )* };
}

indices! {
    /// The index of a resource in a builder.
    ResourceIndex,
    /// The index of a mapping in a builder.
    MappingIndex,
    /// The index of a function in a builder.
    FunctionIndex,
    /// The index of a location in a builder.
    LocationIndex,
    /// The index of a stack in a builder.
    StackIndex,
    /// The index of a set of sample attributes in a builder.
    AttributeSetIndex,
    /// The index of a type of profile in a builder.
    ProfileTypeIndex,
}

impl AttributeSetIndex {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
}

/// Identifies the file of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MappingBuildIds<'a> {
    /// In hexadecimal digits: the first 16 bytes of SHA-256 over the first 4096 bytes of the file, its last 4096 bytes
    /// and its length as a big-endian `u64`.
    pub htlhash: &'a str,
    /// The GNU build ID in hexadecimal digits.
    pub gnu: Option<&'a str>,
    /// The Go build ID.
    pub go: Option<&'a str>,
}

/// A range of a file that is mapped into memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mapping<'a> {
    /// The address of its first byte. Less than `memory_limit`, or both are 0 if it has no addresses.
    pub memory_start: u64,
    /// The address after its last byte.
    pub memory_limit: u64,
    /// The file offset of its first byte.
    pub file_offset: u64,
    /// The name of the file.
    pub filename: &'a str,
    /// Identifies the file.
    pub build_ids: MappingBuildIds<'a>,
}

/// A function, with at least one known name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Function<'a> {
    /// The readable name.
    pub name: &'a str,
    /// The linker name, if it is different.
    pub system_name: &'a str,
    /// The source file.
    pub filename: &'a str,
    /// The line where it starts, from 1; 0 if unknown.
    pub start_line: u32,
}

/// A position in the source code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// The function.
    pub function: FunctionIndex,
    /// The line, from 1; 0 if unknown.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
}

impl Line {
    /// An unknown line of `function`.
    #[must_use]
    pub const fn new(function: FunctionIndex) -> Self {
        Self { function, line: 0, column: 0 }
    }
}

/// One frame of a stack: a `Location` on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StackFrame<'a> {
    /// The mapping that contains `address`, if a file backs it.
    pub mapping: Option<MappingIndex>,
    /// Within the mapping's memory. In frames other than the leaf, it may be inside the call instruction.
    pub address: u64,
    /// The language or runtime.
    pub frame_type: FrameType,
    /// Whether a process generated the code at run time, if the type doesn't say by which runtime.
    pub is_generated: bool,
    /// Whether nothing proves that this is the caller of the previous frame.
    pub is_guessed: bool,
    /// Whether the name is words of the profiler, in brackets, and not a function's; `None` if it does not look so.
    pub is_marker: Option<bool>,
    /// The function at `address` comes last, preceded by the functions inlined into it, innermost first.
    pub lines: &'a [Line],
}

/// The attributes of a sample. Each is optional, because receivers may create a series for each distinct set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampleAttributes<'a> {
    /// The thread id, in the namespace of the report.
    pub thread_id: Option<i64>,
    /// The name of the thread.
    pub thread_name: Option<&'a str>,
    /// The logical number of the CPU.
    pub cpu: Option<u32>,
    /// Why the stack is incomplete; `None` if it is complete.
    pub outcome: Option<&'a str>,
    /// Other attributes, with few distinct values. Keys must differ from those of the fields here.
    pub extra: &'a [(&'a str, Value<'a>)],
}

/// The span that was active.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Link {
    /// Never all zero.
    pub trace_id: [u8; 16],
    /// Never all zero.
    pub span_id: [u8; 8],
}

/// What the samples of a profile count, and what is sent of each event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileType {
    /// The sample type and the period.
    pub sample_type: SampleType,
    /// The data of each event.
    pub shape: SampleShape,
    /// Tools show the first profile by default: profiles are sent in ascending rank.
    pub display_rank: u8,
}

impl From<Kind> for ProfileType {
    fn from(kind: Kind) -> Self {
        let KindDescriptor { shape, display_rank, .. } = kind.descriptor();
        Self { sample_type: SampleType::from_kind(kind), shape, display_rank }
    }
}

/// What the events of one sample have in common: everything except time and value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SampleIdentity {
    /// The resource that the events belong to.
    pub resource: ResourceIndex,
    /// What the value of an event counts, and what is sent of it.
    pub profile_type: ProfileTypeIndex,
    /// The stack.
    pub stack: StackIndex,
    /// Further attributes.
    pub attributes: AttributeSetIndex,
    /// The span that was active.
    pub link: Option<Link>,
}
