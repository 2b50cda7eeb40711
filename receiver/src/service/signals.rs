//! What the outside tells us, by signals.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Has a byte for each signal that was taken.
    wakeups: UnixStream,
}

impl Signals {
    /// Takes `SIGHUP`, `SIGINT` and `SIGTERM`. `stop` becomes true by the latter two, and not later than this is woken by
    /// them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn install(stop: Arc<AtomicBool>) -> io::Result<Self> {
        let reload = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        let (woken, wake) = UnixStream::pair()?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(Self { stop, reload, wakeups: woken })
    }

    /// Sleeps until a signal comes, at the longest for `timeout`, which is not zero.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut bytes = [0; 16];
        // A wait that fails, or ends early, is a short one.
        let _ = self.wakeups.set_read_timeout(Some(timeout)).and_then(|()| (&self.wakeups).read(&mut bytes));
    }

    /// Whether we were told to end.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether we were told to read the configuration again since this was asked last.
    pub(super) fn take_reload_request(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_signal_ends_a_wait_and_is_told_once() {
        let signals = Signals::install(Arc::default()).unwrap();
        signals.wait(Duration::from_millis(1));
        assert!(!signals.take_reload_request(), "nobody has said so");
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let began = Instant::now();
        signals.wait(Duration::from_secs(600));
        assert!(began.elapsed() < Duration::from_secs(300), "it did not wait for the end");
        assert_eq!((signals.take_reload_request(), signals.take_reload_request()), (true, false));
        assert!(!signals.is_stop_requested());
    }
}
