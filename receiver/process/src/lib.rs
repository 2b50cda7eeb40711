//! Processes, their executable mappings and their files, kept up to date from events.
//!
//! - [`Registry`] knows the living processes and their executable mappings. It reads `/proc` once for processes that already
//!   run, and then follows [`ProcessEvent`]s, which [`EventQueue`] puts in order of time. Data that events don't provide,
//!   because some were lost, it recovers by rescanning processes.
//! - [`FileTable`] gives every mapped file a small ID that is valid for the whole run, opens the file through a process that
//!   maps it, and confirms that it is the mapped one.
//! - [`ProcessDescription`] describes a process: names, owner, container, resource attributes. The data that its SDK
//!   publishes is in [`context`], and the location of its threads' data in [`tls`].
//!
//! All input belongs to untrusted processes: names are bytes, sizes are bounded, and only regular files are ever opened for
//! reading.
#![forbid(unsafe_code)]

mod arch;
mod build_id;
mod cgroup;
mod clock;
pub mod context;
mod credentials;
mod description;
mod environment;
mod event;
mod event_queue;
mod file_status;
mod file_table;
mod filesystem;
mod go;
mod id;
mod interner;
mod jit_interface;
mod mapping;
mod mapping_set;
mod maps;
mod memory;
mod open;
mod opened_file;
mod package_note;
mod pod;
mod process;
mod process_tree;
mod procfs;
mod read_at;
mod registry;
mod scan;
pub mod tls;
mod token_bucket;
mod vdso;

pub use build_id::{BuildIds, FileHash, read_build_ids, read_htlhash};
pub use cgroup::{ContainerId, container_id, pod_uid, session_uid, systemd_unit};
pub use credentials::Credentials;
pub use description::{ContainerNames, ProcessDescription, status_numbers};
pub use environment::{ResourceVariables, resource_variables};
pub use event::{ProcessEvent, ProcessEventKind};
pub use event_queue::EventQueue;
pub use file_table::{FileEntry, FileId, FileTable, FileTableLimits, IdentifiedFile};
pub use go::{GoLabels, read_go_version};
pub use id::{BuildId, DeviceId, MappedIdentity, Pid, ProcessKey, Tid};
pub use jit_interface::{JIT_DESCRIPTOR, JitListError, SymbolFile, read_jit_list};
pub use mapping::{Backing, ExecutableMapping, MappedFile};
pub use mapping_set::{MappingMemory, MappingSet};
pub use maps::{MapsLine, MapsLineError, MapsSummary, read_executable_mappings};
pub use memory::{ForeignMemory, ProcessMemory};
pub use open::{OpenError, PathTrust, ProcessRoot, Refusal};
pub use opened_file::{Confirmation, OpenedFile};
pub use package_note::read_package_note;
pub use pod::{PodBounds, PodBoundsError};
pub use process::Process;
pub use process_tree::{ProcessTree, RunningProcess};
pub use procfs::{ProcRoot, ProcessDir, ProcessState, ProcfsError};
pub use read_at::ReadAt;
pub use registry::{Change, Registry, RegistryCounters, RegistryLimits};
pub use scan::{ScanResult, Scanner};
pub use vdso::vdso_image;
