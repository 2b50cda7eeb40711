//! Profiles for people: tables, folded stacks, pprof, flame graphs, and other viewers' forms.
//!
//! A [`Profile`] goes in; [`write()`] gives it the [`ProfileFormat`] that a file's name asks for, [`table()`] and [`summary()`]
//! what a terminal shows. Names come from the programs that were profiled and may be hostile: every form passes
//! them through [`escaped`], so that none holds a control character, and then quotes them as the form demands.
#![forbid(unsafe_code)]

mod difference;
mod document;
mod escape;
mod firefox;
mod folded;
mod format;
mod functions;
mod guessed_callers;
mod merge;
mod page;
mod palette;
mod pprof;
mod profile;
mod read;
mod speedscope;
mod summary;
mod svg;
mod table;
mod tree;

pub use difference::difference;
pub use document::{DocumentBuilder, LiveUpdate, TableLengths, TableLengthsError};
pub use escape::escaped;
pub use format::{ProfileFormat, RenderError, UnknownFormat, write};
pub use functions::{FunctionTotals, functions};
pub use guessed_callers::{GuessedCallers, guessed_callers};
pub use merge::merge;
pub use page::live_page;
pub use profile::{
    BinaryIndex, FrameCategory, FrameIndex, MergedRecording, OutcomeCount, Profile, ProfileBinary,
    ProfileFrame, ProfileSample, ProfileSpan, ProfileThread, SampleType, Severity, SpanIndex, StackIndex,
    ThreadIndex,
};
pub use read::{ReadError, read};
pub use summary::summary;
pub use table::{TableOptions, table};
