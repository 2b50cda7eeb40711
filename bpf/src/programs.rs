//! The programs of `c/sample.bpf.c`: when each is loaded, when it runs, and which map it is called through. A new program
//! needs a row here.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, ProgramMut};
use sidewinder_kind::KindSet;

use crate::sample_kind::SampleKind;
use crate::skeleton::sample::{OpenSampleProgs, SampleProgs, SampleSkel};
use crate::walk::WalkMode;

/// The conditions that select which programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramSelection<'a> {
    pub(crate) kinds: &'a KindSet,
    pub(crate) walk: WalkMode,
    /// Whether processes are listed.
    pub(crate) uses_process_list: bool,
    /// Whether listed processes have other ids in our PID namespace, which must then be kept until they are freed.
    pub(crate) keeps_namespaced_tids: bool,
    /// Whether to load the test programs.
    #[cfg(feature = "test-programs")]
    pub(crate) test_programs: bool,
}

impl ProgramSelection<'_> {
    fn samples(self, kind: SampleKind, walk: WalkMode) -> bool {
        self.walk == walk && kind.profile_kind(self.kinds).is_some()
    }
}

/// When a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgramTrigger {
    /// At overflows of the counter for samples of this kind, for each event that it is attached to.
    AtOverflows(SampleKind),
    /// When a program that walks by tail calls calls it.
    WhenCalled,
    /// At a tracepoint: at every fork, exec or exit of the node.
    AtTracepoint,
    /// When a test runs it.
    #[cfg(feature = "test-programs")]
    InTests,
}

macro_rules! programs {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(in $calls:ident)?, $runs:ident $(($kind:ident))?, |$selection:pat_param| $is_loaded:expr;
    )*) => {
        /// Sets exactly the selected programs to be loaded.
        pub(crate) fn select(programs: &mut OpenSampleProgs<'_>, selection: ProgramSelection<'_>) {
            $(
                $(#[$attribute])*
                {
                    let is_loaded = |$selection: ProgramSelection<'_>| $is_loaded;
                    programs.$name.set_autoload(is_loaded(selection));
                }
            )*
        }

        /// The trigger of each program.
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

        /// Stores the programs that are entered by tail calls in their maps.
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
    sample_cpu, AtOverflows(Cpu), |it| it.samples(SampleKind::Cpu, WalkMode::Loop);
    sample_cpu_by_calls, AtOverflows(Cpu), |it| it.samples(SampleKind::Cpu, WalkMode::TailCalls);
    walk_cpu_by_calls in cpu_walks, WhenCalled, |it| it.samples(SampleKind::Cpu, WalkMode::TailCalls);
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

/// A loaded program that runs at overflows, with the kind of its samples.
pub(crate) type SamplingProgram<'skeleton> = (SampleKind, &'skeleton ProgramMut<'skeleton>);

/// All loaded programs that run at overflows: one for each kind.
pub(crate) fn sampling<'skeleton>(programs: &'skeleton SampleProgs<'_>) -> Vec<SamplingProgram<'skeleton>> {
    let at_overflows = |(runs, program)| match runs {
        ProgramTrigger::AtOverflows(kind) => Some((kind, program)),
        _ => None,
    };
    loaded(programs).filter_map(at_overflows).collect()
}

/// A program that isn't loaded has no descriptor.
fn is_loaded(program: &ProgramMut<'_>) -> bool {
    program.as_fd().as_raw_fd() >= 0
}

/// Makes tail calls through this map enter the program, if it is loaded.
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
    use sidewinder_kind::Kind;

    use crate::events::PerfCounter;

    /// Every kind that a program samples.
    const KINDS: [Kind; 1] = [Kind::Cpu { samples_per_second: 100 }];

    #[test]
    fn a_program_that_runs_at_overflows_has_a_counter() {
        let kinds = RUNS.iter().filter_map(|runs| match runs {
            ProgramTrigger::AtOverflows(kind) => Some(kind),
            _ => None,
        });
        let counted = |kind: &SampleKind| {
            let mut of_kind = KINDS.into_iter().filter(|of| SampleKind::of(*of) == Some(*kind));
            of_kind.any(|of| PerfCounter::of(of).is_some())
        };
        assert!(kinds.clone().count() > 0 && kinds.clone().all(counted));
    }
}
