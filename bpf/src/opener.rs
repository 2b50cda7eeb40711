//! The thread that keeps privileges.
//!
//! Capabilities belong to threads. While sampling, they are needed only occasionally: to allocate memory for another
//! table, or to open events for a container that has just started. So one small thread keeps the capabilities for these
//! operations ([`Opener::reduce_privileges`]) and does nothing else; all other threads can drop theirs.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// An operation that the thread runs.
type Operation = Box<dyn FnOnce() + Send>;

/// A handle to the thread, which ends when the last handle is dropped. Operations that need the thread are methods of this type, each in
/// its own file.
#[derive(Clone, Debug)]
pub struct Opener {
    operations: Sender<Operation>,
}

impl Opener {
    /// Starts the thread, with the privileges of the current one.
    ///
    /// # Errors
    /// If the thread can't be created.
    pub fn start() -> io::Result<Self> {
        let (operations, incoming) = channel::<Operation>();
        let serve = move || incoming.into_iter().for_each(|operation| operation());
        thread::Builder::new().name("opener".to_owned()).spawn(serve)?;
        Ok(Self { operations })
    }

    /// Runs a closure on the opener's thread, to drop privileges that none of its operations needs. Threads that it starts
    /// later have no more privileges than the remaining ones.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn reduce_privileges(&self, narrow: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.run(narrow)
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
        let run = move || {
            // The receiver may have stopped waiting.
            let _ = sender.send(run());
        };
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = self.run(move || builder.spawn(run))??;
        Ok(Spawned { thread, result })
    }

    /// Runs an operation on the opener's thread, with its privileges, and waits for the result.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let ended = || io::Error::other("the thread that keeps the privileges has ended");
        let (sender, result) = channel();
        let operation = Box::new(move || {
            // The receiver waits, unless this thread ends.
            let _ = sender.send(operation());
        });
        self.operations.send(operation).map_err(|_| ended())?;
        result.recv().map_err(|_| ended())
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
