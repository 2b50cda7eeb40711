//! Data that the SDK inside a process publishes for external readers: who the process is, and where its threads store their
//! current span (OpenTelemetry's "Process Context", OTEP 4719).
//!
//! A mapping with a defined name contains a header, which points to a payload, a protobuf message. All of it belongs to an
//! untrusted process that may change it at any time: sizes are bounded, and a payload that changes while it is read is read
//! again.
//!
//! Writers name the mapping with `prctl(PR_SET_VMA)`, and name it again after each change. No event reports that: system
//! calls could only be traced on the whole node, at a cost to each of them, and the side band reports executable mappings
//! only, which this one never is (with the others, it would report each large `malloc`). So changes are found by polling:
//! occasionally for the mapping, and in a known one for its publication time, which is a single read.

mod error;
mod header;
mod payload;

use std::io::{self, Read};
use std::sync::Arc;

use sidewinder_address::Avma;

use crate::maps::{MapsLine, read_lines};
use crate::memory::ForeignMemory;
pub use error::ContextError;
use header::{ContextHeader, HEADER_BYTES};
pub use payload::{ContextValue, ProcessContext, ThreadContexts};

/// Mappings of one process that are examined. A process has one, unless it is malicious.
const MAPPINGS_MAX: usize = 4;
/// How often a payload that changes while it is read is read.
const TRIES: u32 = 3;

/// A context, and the data to detect that it has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedContext {
    /// The address of its header.
    pub header: Avma,
    /// When it was published, by `CLOCK_BOOTTIME`. A later publication has another time.
    pub published_ns: u64,
    /// Its contents.
    pub context: Arc<ProcessContext>,
}

impl PublishedContext {
    /// Whether this context is still published. Also false while it is being changed.
    #[must_use]
    pub fn is_current(&self, memory: &impl ForeignMemory) -> bool {
        ContextHeader::read(memory, self.header)
            .is_ok_and(|header| header.is_some_and(|header| header.published_ns == self.published_ns))
    }
}

/// Reads the context of a process, given the addresses of the mappings that have the name of a context.
///
/// # Errors
/// See [`ContextError`]. If several mappings have the name, the error is the last one's.
pub fn read_process_context(
    mappings: impl IntoIterator<Item = Avma>,
    memory: &impl ForeignMemory,
) -> Result<PublishedContext, ContextError> {
    let mut error = ContextError::Absent;
    for header in mappings {
        match read_at(memory, header) {
            Ok(published) => return Ok(published),
            Err(ContextError::Absent) => {}
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// The addresses of the mappings that have the name of a context, in a process's `/proc/PID/maps`.
///
/// # Errors
/// Any I/O error of the source.
pub fn find_context_mappings(maps: impl Read) -> io::Result<Vec<Avma>> {
    let mut found = Vec::new();
    read_lines(maps, |line, overlong| {
        if let Ok(line) = MapsLine::parse(line)
            && !overlong
            && !line.executable
            && is_name_of_context(line.escaped_name)
            && line.range.end.0 - line.range.start.0 >= HEADER_BYTES as u64
            && found.len() < MAPPINGS_MAX
        {
            found.push(line.range.start);
        }
    })?;
    Ok(found)
}

fn is_name_of_context(name: &[u8]) -> bool {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    [&b"[anon_shmem:OTEL_CTX]"[..], b"[anon:OTEL_CTX]", b"/memfd:OTEL_CTX"].contains(&name)
}

/// Reads the context with the header at this address.
fn read_at(memory: &impl ForeignMemory, at: Avma) -> Result<PublishedContext, ContextError> {
    for _ in 0..TRIES {
        let header = ContextHeader::read(memory, at)?.ok_or(ContextError::Absent)?;
        if header.is_being_changed() {
            continue;
        }
        let mut payload = vec![0; header.payload_bytes()?];
        let payload_read = memory.read_exact(header.payload, &mut payload);
        // The payload is valid only if the header is the same before and after reading it.
        if ContextHeader::read(memory, at)? != Some(header) {
            continue;
        }
        payload_read.map_err(ContextError::Unreadable)?;
        let context = Arc::new(ProcessContext::parse(&payload)?);
        return Ok(PublishedContext { header: at, published_ns: header.published_ns, context });
    }
    Err(ContextError::Busy)
}

#[cfg(test)]
mod tests;
