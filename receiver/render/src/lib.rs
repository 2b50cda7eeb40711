//! Profiles for people: tables, folded stacks, pprof, flame graphs, and other viewers' forms.
//!
//! A [`Profile`] goes in; [`write()`] gives it the [`Form`] that a file's name asks for, [`table()`] and [`summary()`]
//! what a terminal shows. Names come from the programs that were profiled and may be hostile: every form passes
//! them through [`visible`], so that none holds a control character, and then quotes them as the form demands.
#![forbid(unsafe_code)]

mod difference;
mod document;
mod escape;
mod firefox;
mod folded;
mod form;
mod functions;
mod guesses;
mod join;
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
pub use document::{Growth, Instalment, Mark, MarkError};
pub use escape::visible;
pub use form::{Error, Form, UnknownForm, write};
pub use functions::{FunctionTotals, functions};
pub use guesses::{Guesses, guesses};
pub use join::joined;
pub use page::live_page;
pub use profile::{
    Binary, BinaryIndex, Frame, FrameIndex, FrameKind, Measure, Outcome, Part, Profile, Sample, Severity,
    Span, SpanIndex, StackIndex, Thread, ThreadIndex,
};
pub use read::{ReadError, read};
pub use summary::summary;
pub use table::{TableOptions, table};
