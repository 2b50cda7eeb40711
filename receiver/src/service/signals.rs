//! The signals that stop or reload the service: `SIGINT` and `SIGTERM`, `SIGHUP`.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals received so far, and a way to wait for the next one.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Receives a byte for each signal.
    wakeups: UnixStream,
}

impl Signals {
    /// Installs handlers of `SIGHUP`, `SIGINT` and `SIGTERM`. `stop` is a flag that the latter two set; its handlers must be
    /// installed before, so that it is set when they end a [wait](Self::wait).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn install(stop: Arc<AtomicBool>) -> io::Result<Self> {
        let reload = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        let (wakeups, wake) = UnixStream::pair()?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(Self { stop, reload, wakeups })
    }

    /// Sleeps until a signal arrives, at most for `timeout`, which must not be zero.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut bytes = [0; 16];
        // If the wait fails or is interrupted, it is only shorter.
        let _ = self.wakeups.set_read_timeout(Some(timeout)).and_then(|()| (&self.wakeups).read(&mut bytes));
    }

    /// Whether a signal has requested a stop.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether a signal has requested a reload since the last call.
    pub(super) fn take_reload_request(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_signal_ends_a_wait_and_is_reported_once() {
        let signals = Signals::install(Arc::default()).unwrap();
        signals.wait(Duration::from_millis(1));
        assert!(!signals.take_reload_request(), "there was no signal");
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let began = Instant::now();
        signals.wait(Duration::from_secs(600));
        assert!(began.elapsed() < Duration::from_secs(300), "the wait ended early");
        assert_eq!((signals.take_reload_request(), signals.take_reload_request()), (true, false));
        assert!(!signals.is_stop_requested());
    }
}
