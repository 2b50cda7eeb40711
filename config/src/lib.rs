//! Sidewinder's configuration, in the OpenTelemetry Collector's YAML structure, validated as a whole.
//!
//! [`load`] turns `--config` and `--set` into a [`Config`] of plain typed values, or reports every error at once;
//! [`print_config`] turns it back into text; [`reference()`] documents every key.
//!
//! Sources, merging and `${...}` work as in the Collector. General deviations (those of single keys are in
//! [`KeyReference::deviation`]): a duration without a unit is refused, where the Collector takes nanoseconds; `${file:...}`
//! removes the line break at a file's end; a duplicate key in a map is refused; a number that need not be whole may be quoted, as
//! `helm --set` writes it; sources are bounded in size and depth.
//!
//! ```text
//! source, otel_environment  texts           files, environment, `--set`
//! yaml                      text to tree    values and their locations in one pass; and back
//! tree, expand              tree to tree    merging, `${...}`
//! table                     every key       its meaning, and whether it has an effect
//! schema                    tree to values  each key listed once, read and written from that list
//! reference                 documentation   the table, with the accepted values of the types
//! change                    two of them     the effect of a change at run time
//! model                     the values      no YAML from here on
//! ```
#![forbid(unsafe_code)]

mod change;
mod diagnostics;
mod duration;
mod expand;
mod input_file;
mod load;
mod model;
mod otel_environment;
mod print;
mod reference;
mod schema;
mod source;
mod table;
mod tree;
mod yaml;

pub use change::reload_for_change;
pub use diagnostics::{ConfigError, ConfigErrors, ConfigProblem, Warning};
pub use duration::{format as format_duration, parse as parse_duration};
pub use input_file::{open_input, read_bounded};
pub use load::{LoadedConfig, load};
pub use model::*;
pub use otel_environment::names_otel_endpoint;
pub use print::{PrintFormat, PrintMode, print_config};
pub use reference::{KeyReference, json_schema, reference, reference_markdown};
pub use source::{ConfigSource, Environment, ProcessEnvironment, SourceError};
pub use table::Reload;
pub use tree::SourceLocation;
