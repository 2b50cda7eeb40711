//! The thread that keeps privileges.
//!
//! Capabilities belong to threads. While sampling, they are needed only occasionally: to allocate memory for another
//! table, or to open events for a container that has just started. So one small thread keeps the capabilities for these
//! operations ([`Opener::reduce_privileges`]) and does nothing else; all other threads can drop theirs.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::chunk;
use crate::container::Container;
use crate::events::{CpuList, EventError, EventKind, EventTarget};
use crate::foreign_memory::ForeignMemoryPrograms;
use crate::kernel_names::KernelNamesProgram;
use crate::load::{LoadError, PodCgroup, Storage};
use crate::tracepoint::{self, TracepointError};
use crate::user_probe::{PlaceRequest, UserProbeError};

/// A request to the thread.
enum OpenerRequest {
    Chunk { reply: Sender<io::Result<OwnedFd>> },
    Container { pid: u32, reply: Sender<io::Result<Container>> },
    Events { of: Box<EventRequest>, reply: Sender<Result<Vec<OwnedFd>, EventError>> },
    UserProbe { place: Box<PlaceRequest>, reply: Sender<Result<OwnedFd, UserProbeError>> },
    Tracepoint { program: OwnedFd, name: String, reply: Sender<Result<OwnedFd, TracepointError>> },
    Thread { name: String, run: Box<dyn FnOnce() + Send>, reply: Sender<io::Result<JoinHandle<()>>> },
    KernelSymbol { address: u64, reply: Sender<Option<String>> },
    ForeignMemory { pod: Option<PodCgroup>, reply: Sender<Result<Arc<ForeignMemoryPrograms>, LoadError>> },
    ReducePrivileges { narrow: Box<dyn FnOnce() + Send>, reply: Sender<()> },
}

/// Opens one event on each of these CPUs.
struct EventRequest {
    kind: EventKind,
    cpus: CpuList,
    /// The directory of a cgroup; `None`: all tasks.
    cgroup: Option<OwnedFd>,
}

/// A handle to the thread, which ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Opener {
    requests: Sender<OpenerRequest>,
}

impl Opener {
    /// Starts the thread, with the privileges of the current one.
    ///
    /// # Errors
    /// If the thread can't be created.
    pub fn start() -> io::Result<Self> {
        let (requests, incoming) = channel();
        thread::Builder::new().name("opener".to_owned()).spawn(move || serve(&incoming))?;
        Ok(Self { requests })
    }

    /// Runs a closure on the opener's thread, to drop privileges that none of its requests needs. Threads that it starts
    /// later have no more privileges than the remaining ones.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn reduce_privileges(&self, narrow: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.request(|reply| OpenerRequest::ReducePrivileges { narrow: Box::new(narrow), reply })
    }

    /// Starts a thread with the privileges of the opener's thread.
    ///
    /// # Errors
    /// If the thread can't be created.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Spawned<T>> {
        let (sender, result) = channel();
        let run = Box::new(move || {
            // The receiver may have stopped waiting.
            let _ = sender.send(run());
        });
        let thread = self.request(|reply| OpenerRequest::Thread { name: name.to_owned(), run, reply })??;
        Ok(Spawned { thread, result })
    }

    /// Creates an array map for one chunk of the arena.
    pub(crate) fn create_chunk(&self) -> io::Result<OwnedFd> {
        self.request(|reply| OpenerRequest::Chunk { reply })?
    }

    /// Finds the container of a process.
    ///
    /// # Errors
    /// As [`Container::from_pid`].
    pub fn container(&self, pid: u32) -> io::Result<Container> {
        self.request(|reply| OpenerRequest::Container { pid, reply })?
    }

    /// Opens one event on each of `cpus`, for a container's tasks or for all.
    pub(crate) fn events(
        &self,
        kind: EventKind,
        cpus: &CpuList,
        container: Option<&Container>,
    ) -> Result<Vec<OwnedFd>, EventError> {
        let cgroup = container.map(|container| container.directory().try_clone_to_owned());
        let cgroup = cgroup.transpose().map_err(EventError::Opener)?;
        let of = Box::new(EventRequest { kind, cpus: cpus.clone(), cgroup });
        self.request(|reply| OpenerRequest::Events { of, reply }).map_err(EventError::Opener)?
    }

    /// Creates the link of a probe, or opens its perf event.
    pub(crate) fn place_user_probe(
        &self,
        place: PlaceRequest,
    ) -> io::Result<Result<OwnedFd, UserProbeError>> {
        self.request(|reply| OpenerRequest::UserProbe { place: Box::new(place), reply })
    }

    /// Attaches a program to a tracepoint.
    pub(crate) fn open_tracepoint(
        &self,
        program: OwnedFd,
        name: &str,
    ) -> io::Result<Result<OwnedFd, TracepointError>> {
        self.request(|reply| OpenerRequest::Tracepoint { program, name: name.to_owned(), reply })
    }

    /// The kernel's name for one of its addresses: `name+0xOFFSET/0xSIZE [module]`. `None` if the kernel can't resolve
    /// it: before Linux 5.13, or without the privileges.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn kernel_symbol(&self, address: u64) -> io::Result<Option<String>> {
        self.request(|reply| OpenerRequest::KernelSymbol { address, reply })
    }

    /// Loads the programs that read the memory of other processes.
    ///
    /// # Errors
    /// As [`ForeignMemoryPrograms::load`], or if the thread has ended.
    pub fn load_foreign_memory(
        &self,
        pod: Option<PodCgroup>,
    ) -> Result<Arc<ForeignMemoryPrograms>, LoadError> {
        let ended = |source| LoadError::Map { map: "reads of memory", source };
        self.request(|reply| OpenerRequest::ForeignMemory { pod, reply }).map_err(ended)?
    }

    fn request<T>(&self, request: impl FnOnce(Sender<T>) -> OpenerRequest) -> io::Result<T> {
        let (reply, answer) = channel();
        let ended = || io::Error::other("the thread that keeps the privileges has ended");
        self.requests.send(request(reply)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}

/// A thread started by [`Opener::spawn`].
#[derive(Debug)]
pub struct Spawned<T> {
    thread: JoinHandle<()>,
    result: Receiver<T>,
}

impl<T> Spawned<T> {
    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread to end. `None` if it panicked.
    #[must_use]
    pub fn join(self) -> Option<T> {
        self.thread.join().ok()?;
        self.result.try_recv().ok()
    }
}

fn serve(incoming: &Receiver<OpenerRequest>) {
    let mut storage = Storage::uninit();
    let mut kernel_names = KernelNamesState::Unloaded(&mut storage);
    // The requester may have stopped waiting for the response.
    for request in incoming {
        match request {
            OpenerRequest::Chunk { reply } => drop(reply.send(chunk::create_chunk())),
            OpenerRequest::Container { pid, reply } => drop(reply.send(Container::from_pid(pid))),
            OpenerRequest::Events { of, reply } => {
                let target = match &of.cgroup {
                    Some(directory) => EventTarget::Cgroup(directory.as_fd()),
                    None => EventTarget::EveryTask,
                };
                drop(reply.send(of.kind.open(&of.cpus, &target)));
            }
            OpenerRequest::UserProbe { place, reply } => drop(reply.send(place.open())),
            OpenerRequest::Tracepoint { program, name, reply } => {
                drop(reply.send(tracepoint::open(&program, &name)));
            }
            OpenerRequest::Thread { name, run, reply } => {
                drop(reply.send(thread::Builder::new().name(name).spawn(run)));
            }
            OpenerRequest::KernelSymbol { address, reply } => drop(reply.send(kernel_names.symbol(address))),
            OpenerRequest::ForeignMemory { pod, reply } => drop(reply.send(ForeignMemoryPrograms::load(pod))),
            OpenerRequest::ReducePrivileges { narrow, reply } => {
                narrow();
                let _ = reply.send(());
            }
        }
    }
}

/// The program that resolves names of kernel functions, loaded on first use.
enum KernelNamesState<'obj> {
    Unloaded(&'obj mut Storage),
    Loaded(Box<KernelNamesProgram<'obj>>),
    Refused,
}

impl KernelNamesState<'_> {
    fn symbol(&mut self, address: u64) -> Option<String> {
        *self = match mem::replace(self, Self::Refused) {
            Self::Unloaded(storage) => {
                KernelNamesProgram::load(storage).map_or(Self::Refused, |names| Self::Loaded(Box::new(names)))
            }
            loaded => loaded,
        };
        match self {
            Self::Loaded(names) => names.symbol(address).ok(),
            Self::Unloaded(_) | Self::Refused => None,
        }
    }
}
