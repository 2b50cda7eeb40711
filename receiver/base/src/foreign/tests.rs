use std::thread;

use super::workers::QUARANTINED_MAX;
use super::*;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

fn reader(deadline: Duration) -> ForeignReader {
    let spawn = |run| thread::Builder::new().spawn(run).map(drop);
    ForeignReader::start_with(deadline, MemoryAccess::default(), spawn).unwrap()
}

fn target(pid: u32) -> ReadTarget {
    ReadTarget { pid: Pid(pid), start_ticks: 1 }
}

/// Submits a read that returns when the sender is dropped.
fn stuck_read(reader: &ForeignReader, pid: u32) -> (PendingRead<()>, std::sync::mpsc::Sender<()>) {
    let (release, released) = channel::<()>();
    let pending = reader
        .submit(target(pid), move || {
            let _ = released.recv();
        })
        .unwrap();
    (pending, release)
}

fn outcome<T>(pending: &PendingRead<T>) -> Result<T, ReadFailure> {
    loop {
        match pending.poll() {
            Some(outcome) => return outcome,
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn unwrap_done<T>(progress: Result<ReadProgress<T>, ReadFailure>) -> T {
    match progress {
        Ok(ReadProgress::Done(result)) => result,
        Ok(ReadProgress::Pending(_)) => panic!("no result"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_read_that_never_returns_affects_only_its_process() {
    let reader = reader(SHORT);
    let (pending, release) = stuck_read(&reader, 1);
    assert_eq!(outcome(&pending), Err(ReadFailure::TimedOut));
    assert_eq!(reader.submit(target(1), || ()).err(), Some(ReadFailure::Quarantined));
    let other = ReadTarget { start_ticks: 2, ..target(1) };
    assert_eq!(
        unwrap_done(reader.submit(other, || 7).unwrap().wait(LONG)),
        7,
        "another process with its PID"
    );
    // A result is counted after it is sent.
    while reader.counts().answered == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let counts = reader.counts();
    assert_eq!((counts.timed_out, counts.quarantined, counts.answered), (1, 1, 1));
    assert_eq!((counts.quarantined_processes, counts.stuck_reader_threads, counts.is_stuck()), (1, 1, false));
    drop(release);
    while reader.counts().stuck_reader_threads > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(reader.counts().late, 1);
}

#[test]
fn nothing_is_read_while_all_threads_are_stuck() {
    let reader = reader(SHORT);
    let mut releases: Vec<_> = (0..THREADS as u32)
        .map(|pid| {
            let (pending, release) = stuck_read(&reader, pid);
            assert_eq!(outcome(&pending), Err(ReadFailure::TimedOut));
            release
        })
        .collect();
    assert!(reader.counts().is_stuck());
    assert_eq!(reader.submit(target(100), || ()).err(), Some(ReadFailure::Refused));
    releases.pop();
    while reader.counts().is_stuck() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(unwrap_done(reader.submit(target(100), || 7).unwrap().wait(LONG)), 7);
}

#[test]
fn the_queue_is_bounded_and_brief_waits_are_brief() {
    let reader = reader(LONG);
    let (_pending, release) = stuck_read(&reader, 1);
    let mut waiting = Vec::new();
    // The stuck read may still be in the queue.
    let refused = (0..=WAITING_MAX).find_map(|_| match reader.submit(target(2), || ()) {
        Ok(pending) => {
            waiting.push(pending);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused, Some(ReadFailure::Refused));
    assert!(waiting.len() >= WAITING_MAX - 1);
    drop(release);
    for pending in waiting {
        unwrap_done(pending.wait(LONG));
    }
    let (_pending, _release) = stuck_read(&reader, 1);
    let start = Instant::now();
    for _ in 0..100 {
        assert!(matches!(reader.submit_and_wait(target(3), || ()), Ok(ReadProgress::Pending(_))));
    }
    assert!(start.elapsed() < 100 * BRIEF_WAIT, "100 waits took {:?}", start.elapsed());
}

#[test]
fn a_process_that_misses_its_deadline_again_is_in_quarantine_for_longer() {
    let reader = reader(LONG);
    let mut shared = lock(&reader.shared.state);
    let now = Instant::now();
    let times: Vec<u64> = (0..8).map(|_| shared.quarantine(target(1), now).as_secs()).collect();
    assert_eq!(times, [10, 20, 40, 80, 160, 320, 600, 600]);
    for pid in 2..2 + 2 * QUARANTINED_MAX as u32 {
        shared.quarantine(target(pid), now);
    }
    assert!(shared.quarantine.len() <= QUARANTINED_MAX);
}

#[test]
fn a_read_that_panics_is_counted_and_the_next_one_succeeds() {
    let reader = reader(LONG);
    let failed = reader.submit(target(1), || panic!("a bug in a parser")).unwrap();
    assert_eq!(outcome::<()>(&failed), Err(ReadFailure::Failed));
    assert_eq!(unwrap_done(reader.submit(target(1), || 7).unwrap().wait(LONG)), 7);
    assert_eq!(reader.counts().failed, 1);
}
