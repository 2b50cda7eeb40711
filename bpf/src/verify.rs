//! Measures verification: how many instructions the kernel's verifier processes for each program.

use std::time::{Duration, Instant};

use libbpf_rs::AsRawLibbpf;
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::OpenSkel;
use sidewinder_kind::{Counter, Kind, KindSet, SampledCounter, SampledProbe};
use tracing::warn;

use crate::load::{LoadError, Options, Storage, TaskFilter, load_object};
use crate::verifier_log::LOG_STATISTICS;
use crate::walk::WalkMode;

const LOG_BYTES: usize = 16 << 10;
/// The end of lines that are no reason for a refusal, and are many.
const ASSUMED: &str = "is global and assumed valid.";

/// The programs of one walk mode, as the verifier saw them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifierStats {
    /// The name of each loaded program, and how many instructions the verifier processed.
    pub programs: Vec<(String, u64)>,
    /// How long loading took, maps included.
    pub load_time: Duration,
}

/// Loads the programs of a walk mode, records the cost of verifying them, and unloads them.
///
/// # Errors
/// If the kernel refuses the programs or their maps.
pub fn verify(walk: WalkMode) -> Result<VerifierStats, LoadError> {
    let mut storage = Storage::uninit();
    let counters = [Counter::PageFaults, Counter::Cycles].into_iter();
    let counters = counters.map(|counter| Kind::Counter(SampledCounter::by_default(counter, 1)));
    let probes = ["probe", "tracepoint"].map(|name| Kind::Probe(SampledProbe::new(name, None)));
    let kinds = Options::default().kinds.with(Kind::OffCpu).with_lock_wakers();
    let kinds = probes.into_iter().fold(kinds, KindSet::with);
    // With all optional features.
    let options = Options {
        walk: Some(walk),
        scope: TaskFilter::Listed,
        lists_programs: true,
        tracepoints: 1,
        kinds: counters.fold(kinds, KindSet::with),
        context_attributes: true,
        samples_runnable: true,
        min_process_age: Duration::from_secs(1),
        ..Options::default()
    };
    let mut logs: Vec<(String, Box<[u8; LOG_BYTES]>)> = Vec::new();
    let began = Instant::now();
    let loaded = load_object(&mut storage, &options, walk, None, |object| {
        // Those of pods are at another hook.
        let programs = &mut object.progs;
        match walk {
            WalkMode::Loop => programs.sample_off_cpu.set_autoload(true),
            WalkMode::TailCalls => {
                programs.sample_off_cpu_by_calls.set_autoload(true);
                programs.walk_off_cpu_by_calls.set_autoload(true);
            }
        }
        for mut program in object.open_object_mut().progs_mut().filter(|program| program.autoload()) {
            let mut log = Box::new([0; LOG_BYTES]);
            let raw = program.as_libbpf_object().as_ptr();
            program.set_log_level(LOG_STATISTICS);
            // SAFETY: `raw` is a program of an open object. libbpf keeps the pointer until the program is loaded; the buffer is in `logs`, on the
            // heap, until after that, and nothing else accesses it before.
            unsafe { libbpf_sys::bpf_program__set_log_buf(raw, log.as_mut_ptr().cast(), LOG_BYTES as u64) };
            logs.push((program.name().to_string_lossy().into_owned(), log));
        }
    });
    let loaded = loaded.inspect_err(|_| log_refusal(&logs))?;
    let load_time = began.elapsed();
    drop(loaded);
    let programs = logs
        .into_iter()
        .map(|(name, log)| (name, instructions(&String::from_utf8_lossy(&*log)).unwrap_or(0)));
    Ok(VerifierStats { programs: programs.collect(), load_time })
}

/// Logs why a program was refused. Programs are loaded in order, up to that one.
fn log_refusal(logs: &[(String, Box<[u8; LOG_BYTES]>)]) {
    let Some((name, log)) = logs.iter().rev().find(|(_, log)| log[0] != 0) else { return };
    let log = String::from_utf8_lossy(&**log);
    let reasons = log.trim_matches('\0').lines().filter(|line| !line.ends_with(ASSUMED));
    warn!("the kernel's verifier refused {name}:\n{}", reasons.collect::<Vec<_>>().join("\n"));
}

/// The number in `processed 123 insns (limit 1000000) ...`.
fn instructions(log: &str) -> Option<u64> {
    let (_, rest) = log.rsplit_once("processed ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_word_is_read() {
        let log =
            "verification time 12 usec\nstack depth 0+8\nprocessed 360 insns (limit 1000000) peak_states 9\n";
        assert_eq!(instructions(log), Some(360));
        assert_eq!(instructions("func#0 @0\n"), None);
    }
}
