//! Converts events of the kernel's side band into process events for the registry.

use sidewinder_address::Avma;
use sidewinder_bpf::{SideBandEvent, SideBandKind};
use sidewinder_process::{DeviceId, MappedIdentity, Pid, ProcessEvent, ProcessEventKind, Tid};

/// Converts a side-band event into a process event.
pub(super) fn process_event(event: SideBandEvent) -> ProcessEvent {
    let kind = match event.kind {
        SideBandKind::Fork { parent_pid } => {
            ProcessEventKind::Fork { parent: Pid(parent_pid), is_thread: parent_pid == event.pid }
        }
        SideBandKind::Exec { comm } => ProcessEventKind::Exec { comm: comm.into() },
        SideBandKind::Exit => ProcessEventKind::Exit { tid: Tid(event.tid) },
        SideBandKind::Map { start, bytes, file_offset, device: (major, minor), inode, path, .. } => {
            ProcessEventKind::Map {
                range: start..Avma(start.0.saturating_add(bytes)),
                file_offset,
                file: (inode != 0)
                    .then_some(MappedIdentity::Inode { device: DeviceId { major, minor }, inode }),
                path: path.into(),
                executable: true,
            }
        }
        SideBandKind::Lost { count } => ProcessEventKind::Lost { count },
    };
    ProcessEvent { time_ns: event.time_ns, pid: Pid(event.pid), kind }
}
