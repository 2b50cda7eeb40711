//! The programs of `c/sample.bpf.c`: what has each loaded, when it runs, and which map it is called from. A new one gets
//! its row here.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, ProgramMut};

use crate::sample_kind::SampleKind;
use crate::skeleton::sample::{OpenSampleProgs, SampleProgs, SampleSkel};
use crate::walk::WalkMode;

/// What decides which programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramSelection {
    pub(crate) walk: WalkMode,
    /// Whether some processes are listed.
    pub(crate) uses_process_list: bool,
    /// Whether those have other numbers in our PID namespace, so that a thread's must be kept until its end.
    pub(crate) keeps_namespaced_tids: bool,
    /// Whether the programs of tests are asked for.
    #[cfg(feature = "test-programs")]
    pub(crate) test_programs: bool,
}

/// When a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgramTrigger {
    /// At overflows of the counter that samples of this kind are taken by, of events that it is attached to.
    AtOverflows(SampleKind),
    /// Where it is called by one that walks by calls.
    WhenCalled,
    /// At a tracepoint: at every fork, exec or exit of the node.
    AtTracepoint,
    /// Where a test has it run.
    #[cfg(feature = "test-programs")]
    InTests,
}

macro_rules! programs {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(in $calls:ident)?, $runs:ident $(($kind:ident))?, |$selection:pat_param| $is_loaded:expr;
    )*) => {
        /// Has those programs loaded that are selected, and no others.
        pub(crate) fn select(programs: &mut OpenSampleProgs<'_>, selection: ProgramSelection) {
            $(
                $(#[$attribute])*
                {
                    let is_loaded = |$selection: ProgramSelection| $is_loaded;
                    programs.$name.set_autoload(is_loaded(selection));
                }
            )*
        }

        /// When each of the programs runs.
        #[cfg(test)]
        const RUNS: &[ProgramTrigger] = &[$($(#[$attribute])* ProgramTrigger::$runs $((SampleKind::$kind))?,)*];

        /// The programs that are loaded.
        pub(crate) fn loaded<'skeleton>(
            programs: &'skeleton SampleProgs<'_>,
        ) -> impl Iterator<Item = (ProgramTrigger, &'skeleton ProgramMut<'skeleton>)> {
            let all: Vec<(ProgramTrigger, &'skeleton ProgramMut<'skeleton>)> =
                vec![$($(#[$attribute])* (ProgramTrigger::$runs $((SampleKind::$kind))?, &programs.$name),)*];
            all.into_iter().filter(|(_, program)| is_loaded(program))
        }

        /// Puts the programs that are entered by tail calls into their maps.
        pub(crate) fn populate_tail_calls(skeleton: &SampleSkel<'_>) -> libbpf_rs::Result<()> {
            $(
                $(#[$attribute])*
                {
                    $(connect(&skeleton.maps.$calls, &skeleton.progs.$name)?;)?
                }
            )*
            Ok(())
        }
    };
}

// `in MAP`: tail calls find the program in that map.
programs! {
    sample_cpu, AtOverflows(Cpu), |it| it.walk == WalkMode::Loop;
    sample_cpu_by_calls, AtOverflows(Cpu), |it| it.walk == WalkMode::TailCalls;
    walk_cpu_by_calls in cpu_walks, WhenCalled, |it| it.walk == WalkMode::TailCalls;
    process_fork, AtTracepoint, |it| it.uses_process_list;
    process_exec, AtTracepoint, |_| true;
    process_exit, AtTracepoint, |it| it.keeps_namespaced_tids;
    process_free, AtTracepoint, |it| it.uses_process_list;
    #[cfg(feature = "test-programs")]
    sample_probe, InTests, |it| it.test_programs && it.walk == WalkMode::Loop;
    #[cfg(feature = "test-programs")]
    walk_given, InTests, |it| it.test_programs && it.walk == WalkMode::Loop;
    #[cfg(feature = "test-programs")]
    sample_probe_by_calls, InTests, |it| it.test_programs && it.walk == WalkMode::TailCalls;
    #[cfg(feature = "test-programs")]
    walk_probe_by_calls in probe_walks, InTests, |it| it.test_programs && it.walk == WalkMode::TailCalls;
}

/// A program that is loaded and runs at overflows, and the kind of the samples that it takes.
pub(crate) type SamplingProgram<'skeleton> = (SampleKind, &'skeleton ProgramMut<'skeleton>);

/// All programs that are loaded and run at overflows: one of each kind.
pub(crate) fn sampling<'skeleton>(programs: &'skeleton SampleProgs<'_>) -> Vec<SamplingProgram<'skeleton>> {
    let at_overflows = |(runs, program)| match runs {
        ProgramTrigger::AtOverflows(kind) => Some((kind, program)),
        _ => None,
    };
    loaded(programs).filter_map(at_overflows).collect()
}

/// A program that is not loaded has no descriptor.
fn is_loaded(program: &ProgramMut<'_>) -> bool {
    program.as_fd().as_raw_fd() >= 0
}

/// Has tail calls through this map enter the program, if it is loaded.
fn connect(calls: &dyn MapCore, program: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    if !is_loaded(program) {
        return Ok(());
    }
    let fd = program.as_fd().as_raw_fd();
    calls.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::PerfCounter;

    #[test]
    fn a_program_that_runs_at_overflows_has_a_counter() {
        let kinds = RUNS.iter().filter_map(|runs| match runs {
            ProgramTrigger::AtOverflows(kind) => Some(kind),
            _ => None,
        });
        let counted = |kind: &SampleKind| PerfCounter::of(kind.profile_kind(100)).is_some();
        assert!(kinds.clone().count() > 0 && kinds.clone().all(counted));
    }
}
