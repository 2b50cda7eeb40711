//! Events for tests.

use std::sync::Arc;

use sidewinder_bpf::{Outcome, RawFrame, RawFrameKind, monotonic_ns};
use sidewinder_kind::Kind;
use sidewinder_process::ProcessKey;
use sidewinder_profile::Link;

use crate::{Labels, SampleEvent, Stack};

/// The kind of [`event`].
pub const CPU: Kind = Kind::Cpu { samples_per_second: 97 };

/// An event with the current time, whose stack has one frame, at `stack * 0x1000`.
#[must_use]
pub fn event(stack: u64, span: Option<Link>) -> SampleEvent {
    let frame = RawFrame::new(RawFrameKind::Anonymous, stack << 12, false, false);
    let mut comm = [0; 16];
    comm[..6].copy_from_slice(b"thread");
    SampleEvent {
        kind: CPU,
        value: 1,
        time_ns: monotonic_ns(),
        process: ProcessKey { pid: 7, instance: 1 },
        tid: 7,
        cpu: 0,
        comm,
        outcome: Outcome::Complete,
        stack: Some(Arc::new(Stack::new(stack, [frame].into()))),
        span,
        labels: Labels::default(),
        wait: None,
        lock: None,
        ended: None,
    }
}
