//! The thread that keeps privileges.
//!
//! Capabilities belong to threads. Once sampling is under way they are needed now and then only: for the memory of
//! another table, for the events of a container that has just started. So one small thread keeps what these take
//! ([`MappedFileOpener::reduce_privileges`]), does those few things when asked and nothing else, and all others can give theirs up.

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::chunk;
use crate::container::Container;
use crate::events::{CpuList, EventError, EventKind, EventTarget};
use crate::kernel_names::KernelNamesProgram;
use crate::load::Storage;

/// What it can be asked for.
enum OpenerRequest {
    Chunk { reply: Sender<io::Result<OwnedFd>> },
    Container { pid: u32, reply: Sender<io::Result<Container>> },
    Events { of: Box<EventRequest>, reply: Sender<Result<Vec<OwnedFd>, EventError>> },
    Thread { name: String, run: Box<dyn FnOnce() + Send>, reply: Sender<io::Result<JoinHandle<()>>> },
    KernelSymbol { address: u64, reply: Sender<Option<String>> },
    ReducePrivileges { narrow: Box<dyn FnOnce() + Send>, reply: Sender<()> },
}

/// One event on each of these CPUs.
struct EventRequest {
    kind: EventKind,
    cpus: CpuList,
    /// The directory of a cgroup; `None`: every task.
    cgroup: Option<OwnedFd>,
}

/// Asks the thread, which ends with the last of these.
#[derive(Clone, Debug)]
pub struct Opener {
    requests: Sender<OpenerRequest>,
}

impl Opener {
    /// Starts the thread, with the privileges of this one.
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub fn start() -> io::Result<Self> {
        let (requests, incoming) = channel();
        thread::Builder::new().name("opener".to_owned()).spawn(move || serve(&incoming))?;
        Ok(Self { requests })
    }

    /// Runs this on the opener's own thread, for it to give up privileges that none of its requests takes. What it starts
    /// later has no more than what is left.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn reduce_privileges(&self, narrow: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.request(|reply| OpenerRequest::ReducePrivileges { narrow: Box::new(narrow), reply })
    }

    /// Starts a thread with the privileges that the opener has.
    ///
    /// # Errors
    /// If the system has no room for a thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Spawned<T>> {
        let (sender, result) = channel();
        let run = Box::new(move || {
            // Nobody may be waiting for it.
            let _ = sender.send(run());
        });
        let thread = self.request(|reply| OpenerRequest::Thread { name: name.to_owned(), run, reply })??;
        Ok(Spawned { thread, result })
    }

    /// An array map of one chunk of the arena.
    pub(crate) fn create_chunk(&self) -> io::Result<OwnedFd> {
        self.request(|reply| OpenerRequest::Chunk { reply })?
    }

    /// The container of a process.
    ///
    /// # Errors
    /// As [`Container::from_pid`].
    pub fn container(&self, pid: u32) -> io::Result<Container> {
        self.request(|reply| OpenerRequest::Container { pid, reply })?
    }

    /// One event on each of `cpus`, of a container's tasks or of all.
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

    /// What the kernel calls an address of its own: `name+0xOFFSET/0xSIZE [module]`. `None` where it can't be asked: before
    /// Linux 5.13, or without the privilege.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn kernel_symbol(&self, address: u64) -> io::Result<Option<String>> {
        self.request(|reply| OpenerRequest::KernelSymbol { address, reply })
    }

    fn request<T>(&self, request: impl FnOnce(Sender<T>) -> OpenerRequest) -> io::Result<T> {
        let (reply, answer) = channel();
        let ended = || io::Error::other("the thread that keeps the privileges has ended");
        self.requests.send(request(reply)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}

/// A thread that [`Opener::spawn`] has started.
#[derive(Debug)]
pub struct Spawned<T> {
    thread: JoinHandle<()>,
    result: Receiver<T>,
}

impl<T> Spawned<T> {
    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end. `None`: it has panicked.
    #[must_use]
    pub fn join(self) -> Option<T> {
        self.thread.join().ok()?;
        self.result.try_recv().ok()
    }
}

fn serve(incoming: &Receiver<OpenerRequest>) {
    let mut storage = Storage::uninit();
    let mut kernel_names = KernelNamesState::Unloaded(&mut storage);
    // Whoever has asked may not wait for the answer any more.
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
            OpenerRequest::Thread { name, run, reply } => {
                drop(reply.send(thread::Builder::new().name(name).spawn(run)));
            }
            OpenerRequest::KernelSymbol { address, reply } => drop(reply.send(kernel_names.symbol(address))),
            OpenerRequest::ReducePrivileges { narrow, reply } => {
                narrow();
                let _ = reply.send(());
            }
        }
    }
}

/// The program that names the kernel's functions, loaded when it is first asked.
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
