//! What the SDK inside of a process publishes for readers outside of it: who the process is, and where its threads say
//! which span they are in (OpenTelemetry's "Process Context", OTEP 4719).
//!
//! A mapping of a given name holds a header, and the header leads to a payload, a protobuf message. All of it belongs to
//! a process that is not trusted and that may change it at any moment: sizes are bounded, and what changed while it was
//! read is read again.
//!
//! Writers name the mapping, and name it again after each change, by `prctl(PR_SET_VMA)`. No event tells of that: system
//! calls could only be watched for the whole node, at a cost to each of them, and the side band tells of mappings that
//! are executable, which this one never is (with the others it would tell of each large `malloc`). So whoever wants the
//! news looks: for the mapping now and then, and in a known one for the time at which it was published, a single read.

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

/// Mappings of one process that are looked at: a process has one, unless somebody plays tricks.
const MAPPINGS_MAX: usize = 4;
/// Readings of a payload that changes while it is read.
const TRIES: u32 = 3;

/// A context, and what it takes to see that it has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedContext {
    /// Where its header is.
    pub header: Avma,
    /// When it was published, by `CLOCK_BOOTTIME`. A later publication has another time.
    pub published_ns: u64,
    /// What it says.
    pub context: Arc<ProcessContext>,
}

impl PublishedContext {
    /// Whether this is still what is published. False, too, while it is being changed.
    #[must_use]
    pub fn is_current(&self, memory: &impl ForeignMemory) -> bool {
        ContextHeader::read(memory, self.header)
            .is_ok_and(|header| header.is_some_and(|header| header.published_ns == self.published_ns))
    }
}

/// Finds and reads the context of a process, given its `/proc/PID/maps` and its memory.
///
/// # Errors
/// See [`ContextError`]: of several mappings that have the name, the last one's.
pub fn read_process_context(
    maps: impl Read,
    memory: &impl ForeignMemory,
) -> Result<PublishedContext, ContextError> {
    let mut error = ContextError::Absent;
    for header in find_mappings(maps).map_err(ContextError::Unreadable)? {
        match read_at(memory, header) {
            Ok(published) => return Ok(published),
            Err(ContextError::Absent) => {}
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// The mappings that are named as those of contexts are.
fn find_mappings(maps: impl Read) -> io::Result<Vec<Avma>> {
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

/// The context whose header is there.
fn read_at(memory: &impl ForeignMemory, at: Avma) -> Result<PublishedContext, ContextError> {
    for _ in 0..TRIES {
        let header = ContextHeader::read(memory, at)?.ok_or(ContextError::Absent)?;
        if header.is_being_changed() {
            continue;
        }
        let mut payload = vec![0; header.payload_bytes()?];
        let payload_read = memory.read_exact(header.payload, &mut payload);
        // Only what was published before and after is what was published meanwhile.
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
