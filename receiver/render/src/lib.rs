//! Output of profiles: tables, folded stacks, pprof, flame graphs, and the formats of other viewers.
//!
//! The input is a [`Profile`]. [`write()`] writes it in a [`ProfileFormat`], which a file name's suffix selects; [`table()`]
//! and [`summary()`] write terminal output. Names come from profiled programs and may be hostile: every format passes them
//! through [`escaped`], so that no output contains a control character, and then quotes them as the format requires.
#![forbid(unsafe_code)]

mod annotation;
mod category;
mod container;
mod container_table;
mod counts;
mod difference;
mod document;
mod escape;
mod expansion;
mod firefox;
mod fold;
mod folded;
mod format;
mod function_code;
mod functions;
mod guessed_callers;
mod label;
mod listing;
mod lock_sites;
mod merge;
mod names;
mod page;
mod palette;
mod path_tree;
mod pprof;
mod profile;
mod read;
mod renames;
mod significance;
mod speedscope;
mod standard;
mod summary;
mod svg;
mod table;
mod tree;

pub use annotation::{
    Annotations, CodeBlock, FunctionAssembly, FunctionSource, InstructionCosts, Instructions, PageFunction,
    SourceExcerpt, SourcePart, UnwindingRanges,
};
pub use category::FrameCategory;
pub use container::ProfileContainer;
pub use container_table::container_table;
pub use counts::TimeSlicedCounts;
pub use difference::{DifferenceBasis, DifferenceError, difference};
pub use document::{
    DocumentBuilder, DocumentError, LiveUpdate, PageViews, TableLengths, TableLengthsError, decode_document,
};
pub use escape::escaped;
pub use expansion::{ExpansionBudget, ExpansionError};
pub use fold::InlinedFunctions;
pub use format::{ProfileFormat, RenderError, UnknownFormat, write};
pub use function_code::{FunctionCode, LineCost, lines_by_file};
pub use functions::{FunctionId, FunctionOrder, FunctionTotals, callers, functions, functions_of_process};
pub use guessed_callers::{GuessedCallers, guessed_callers};
pub use label::frame_label;
pub use listing::{assembly_listing, source_listing};
pub use merge::merge;
pub use names::{DisplayNames, NameStyle};
pub use page::{live_page, write_page};
pub use pprof::write_pprof_pair;
pub use profile::{
    MergedRecording, OutcomeCount, Profile, ProfileSample, ProfileThread, Severity, StateIndex, ThreadIndex,
    ThreadState,
};
pub use read::{
    NoNames, PerfBinary, PerfCode, PerfFunction, PerfInode, PerfKernel, PerfNames, ReadError, read,
    read_bytes,
};
pub use renames::{RenamedBinary, match_renamed_binaries};
pub use sidewinder_profile::{
    AttributeValue, Attributes, FrameType, Marker, Period, SampleType, StatedAttributes, Truncation,
    ValueType,
};
pub use summary::{RecordingSummary, group_thousands, summary};
pub use table::{DEFAULT_ROWS, TableOptions, fitted, table, thread_tables};
