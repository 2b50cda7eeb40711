//! What becomes of named events: OTLP reports, which exporters send, and profiles for people to read.
//!
//! | Module                  | Contents                                                                                 |
//! |-------------------------|------------------------------------------------------------------------------------------|
//! | `report_queue`          | the queue from the sampling thread to the reporter                                       |
//! | `report`                | OTLP reports from events                                                                 |
//! | `resource`, `processor` | the resource of a process, and the processors that change it                             |
//! | `export`                | the exporters of reports                                                                 |
//! | [`collect`]             | a profile from events, of one recording or of the newest ones                            |
//! | [`import`], [`encode`]  | a profile from a file or a message, and a report of a profile                            |
#![forbid(unsafe_code)]

pub mod collect;
pub mod encode;
mod export;
pub mod import;
mod processor;
mod report;
mod report_queue;
mod resource;

pub use export::Destination;
pub use report::Reporter;
pub use report_queue::{FLUSH_INTERVAL, ReportQueue};
