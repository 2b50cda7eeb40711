//! Processes, their executable mappings and their files, kept up to date from events.
//!
//! - [`Registry`] knows which processes live and what each of them maps executable. It reads `/proc` once
//!   for what was there before and from then on follows [`ProcessEvent`]s, which [`EventQueue`] puts in
//!   order of time. What it cannot know from events (because some were lost) it recovers by rescanning
//!   processes.
//! - [`FileTable`] gives every mapped file a small number that holds for the whole run, opens the file
//!   through the process that maps it and proves that it is the one that is mapped.
//! - [`ProcessDescription`] is what a process says about itself: names, owner, container, resource
//!   attributes. What its SDK publishes besides is in [`context`], and where its threads
//!   keep what they publish in [`tls`].
//!
//! Everything read here belongs to processes that are not trusted: names are bytes, sizes are bounded,
//! and no file but a regular one is ever opened for reading.
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
mod pod;
mod process;
mod procfs;
mod read_at;
mod registry;
mod scan;
pub mod tls;
mod token_bucket;
mod vdso;

pub use build_id::{BuildIds, FileHash, read_build_ids, read_htlhash};
pub use cgroup::{ContainerId, container_id, pod_uid};
pub use credentials::Credentials;
pub use description::ProcessDescription;
pub use environment::{ResourceVariables, resource_variables};
pub use event::{ProcessEvent, ProcessEventKind};
pub use event_queue::EventQueue;
pub use file_table::{FileEntry, FileId, FileTable, FileTableLimits, IdentifiedFile};
pub use go::GoLabels;
pub use id::{BuildId, DeviceId, MappedIdentity, Pid, ProcessKey, Tid};
pub use jit_interface::{JIT_DESCRIPTOR, JitListError, SymbolFile, read_jit_list};
pub use mapping::{Backing, ExecutableMapping, MappedFile};
pub use mapping_set::MappingSet;
pub use maps::{MapsLine, MapsLineError, MapsSummary, read_executable_mappings};
pub use memory::{ForeignMemory, ProcessMemory};
pub use open::{OpenError, PathTrust, ProcessRoot, Refusal};
pub use opened_file::{Confirmation, OpenedFile};
pub use pod::{PodBounds, PodBoundsError};
pub use process::Process;
pub use procfs::{ProcRoot, ProcessDir, ProcessState, ProcfsError};
pub use read_at::ReadAt;
pub use registry::{Change, Registry, RegistryCounters, RegistryLimits};
pub use scan::{ScanResult, Scanner};
pub use vdso::vdso_image;
