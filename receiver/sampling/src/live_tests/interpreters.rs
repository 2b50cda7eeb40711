//! Tests of the frames of interpreters, where programs of ours interrupt each other.

use sidewinder_bpf::VmMissing;
use sidewinder_profile::FrameType;

use super::*;

const PYTHON: &str = "/usr/bin/python3";
/// Calls itself through C, and at the end a function of the C library all the time.
const PROGRAM: &str = "
from os import getppid
def descend(left):
    if left:
        return sum(map(descend, (left - 1,)))
    while True:
        getppid()
descend(12)
";
/// Of the interpreter's loop, the one that executes the module included.
const ACTIVATIONS: usize = 13;
const PROBED: &str = "getppid";
const BUSY: &str = "[Python frames missing: busy]";

/// The C library of a process.
fn mapped_library(pid: u32) -> PathBuf {
    let mappings = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut paths = mappings.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains("/libc.so.") || path.contains("/libc-")).unwrap().into()
}

/// A sample that interrupts a probe's program, which has the CPU's scratch memory for frames of interpreters, says that they
/// are missing, once for each activation. The probe's samples have all of theirs.
#[test]
fn samples_in_other_samples_say_that_frames_are_missing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(child) = Command::new(PYTHON).args(["-c", PROGRAM]).spawn() else {
        eprintln!("SKIPPED: no {PYTHON}");
        return;
    };
    let burner = Burner { child, program: PYTHON.into(), _directory: tempfile::tempdir().unwrap() };
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 9_973, 8 << 20)) else { return };
    sampler.start().unwrap();
    // Until its mappings and its interpreter are known.
    let deadline = Instant::now() + Duration::from_secs(30);
    while sampler.profiler().vm_frames().groups == 0 && Instant::now() < deadline {
        poll_for(&mut sampler, Duration::from_millis(200));
    }
    let library = mapped_library(burner.child.id());
    let Some(probe) = probe_at(&sampler, &library, offset_of_exported(&library, PROBED)) else { return };
    let mut messages = poll_for(&mut sampler, Duration::from_secs(3));
    drop(probe);
    messages.append(&mut stop(&mut sampler));

    let counts = sampler.profiler().vm_frames();
    let is_busy = |(reason, _): &(VmMissing, u64)| *reason == VmMissing::Busy;
    let counted = VmMissing::ALL.into_iter().zip(counts.missing).find(is_busy).map_or(0, |(_, count)| count);
    let profiles =
        [SampleKind::Cpu, SampleKind::Probe].map(|kind| profile_of(kind, messages.clone(), &sampler));
    let [mut busy, mut whole] = [0, 0];
    for (profile, is_probe) in profiles.iter().zip([false, true]) {
        for (stack, count) in profile.stack_counts() {
            let frames = || profile.frames_of(stack);
            let of_python = frames().filter(|frame| frame.location.frame_type == FrameType::CPython);
            // A function without a known name is words too, so only these words tell them apart.
            let is_busy = |frame: &Frame<'_>| frame.location.marker.is_some() && frame.name() == BUSY;
            let (markers, of_python): (Vec<_>, Vec<_>) = of_python.partition(is_busy);
            let (markers, of_python) = (markers.len(), of_python.len());
            let is_cut = frames().any(|frame| matches!(frame.location.marker, Some(Marker::Truncated(_))));
            if markers > 0 {
                assert!(!is_probe && of_python == 0, "{markers} markers beside {of_python} frames");
                assert!(is_cut || markers == ACTIVATIONS, "{markers} markers");
                busy += count;
            } else if is_probe && !is_cut {
                assert!(of_python > ACTIVATIONS, "{of_python} frames of Python");
                whole += count;
            }
        }
    }
    assert!(busy >= 20 && counted >= busy * ACTIVATIONS as u64, "{busy} samples, {counted} markers");
    assert!(whole >= 1_000, "{whole} samples of the probe");
}
