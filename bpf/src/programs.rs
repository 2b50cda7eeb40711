//! The programs of `c/sample.bpf.c`: when each is loaded, when it runs, and which map it is called through. A new program
//! needs a row here.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, ProgramAttachType, ProgramMut};
use sidewinder_kind::KindSet;

use crate::sample_kind::{SampleKind, SampleSource};
use crate::skeleton::sample::{OpenSampleProgs, SampleProgs, SampleSkel};
use crate::walk::WalkMode;

/// The conditions that select which programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramSelection<'a> {
    pub(crate) kinds: &'a KindSet,
    /// How many of the probes are at tracepoints.
    pub(crate) tracepoints: usize,
    pub(crate) walk: WalkMode,
    /// Whether context switches are those of the tracepoint, and not events of cgroups.
    pub(crate) traces_switches: bool,
    /// Whether processes are listed.
    pub(crate) uses_process_list: bool,
    /// Whether the children of listed processes are listed at their fork.
    pub(crate) lists_children: bool,
    /// Whether listed processes have other ids in our PID namespace, which must then be kept until they are freed.
    pub(crate) keeps_namespaced_tids: bool,
    /// Whether to load the test programs.
    #[cfg(feature = "test-programs")]
    pub(crate) test_programs: bool,
}

impl ProgramSelection<'_> {
    fn samples(self, source: SampleSource, walk: WalkMode) -> bool {
        let mut sampled = self.kinds.iter().filter_map(|kind| SampleKind::of(kind, self.kinds));
        self.walk == walk && sampled.any(|kind| kind.source() == source)
    }

    /// Whether there are off-CPU samples at this hook of context switches.
    fn samples_switches(self, at_tracepoint: bool, walk: WalkMode) -> bool {
        self.traces_switches == at_tracepoint && self.samples(SampleSource::OffCpu, walk)
    }

    /// Whether there are probes in programs.
    fn probes_programs(self, walk: WalkMode) -> bool {
        self.walk == walk && self.kinds.probes().count() > self.tracepoints
    }

    /// Whether there is a tracepoint with this index among those of the run.
    fn probes_tracepoint(self, index: usize, walk: WalkMode) -> bool {
        self.walk == walk && index < self.tracepoints
    }
}

/// When a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgramTrigger {
    /// At overflows of a counter for these samples, for each event that it is attached to.
    AtOverflows(SampleSource),
    /// When a place in a program is executed, for each place that it is attached to.
    AtProbes,
    /// At the tracepoint that the user chose for it.
    AtChosenTracepoint,
    /// At every context switch of the node.
    AtSwitches,
    /// At every wake-up of a task of the node.
    AtWakeups,
    /// When a program that walks by tail calls calls it.
    WhenCalled,
    /// At a tracepoint: at every fork, exec or exit of the node.
    AtTracepoint,
    /// For each task, when the receiver reads from an iterator.
    InIterator,
    /// When a test runs it.
    #[cfg(feature = "test-programs")]
    InTests,
}

impl ProgramTrigger {
    /// Whether the program's section names the tracepoint at which it runs, for as long as the profiler is there.
    pub(crate) fn is_tracepoint(self) -> bool {
        matches!(self, Self::AtSwitches | Self::AtWakeups | Self::AtTracepoint)
    }
}

macro_rules! programs {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(in $calls:ident $([$index:literal])?)?, $runs:ident $(($kind:ident))?, |$selection:pat_param| $is_loaded:expr;
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
        const RUNS: &[ProgramTrigger] = &[$($(#[$attribute])* ProgramTrigger::$runs $((SampleSource::$kind))?,)*];

        /// The programs that are loaded.
        pub(crate) fn loaded<'skeleton>(
            programs: &'skeleton SampleProgs<'_>,
        ) -> impl Iterator<Item = (ProgramTrigger, &'skeleton ProgramMut<'skeleton>)> {
            let all: Vec<(ProgramTrigger, &'skeleton ProgramMut<'skeleton>)> =
                vec![$($(#[$attribute])* (ProgramTrigger::$runs $((SampleSource::$kind))?, &programs.$name),)*];
            all.into_iter().filter(|(_, program)| is_loaded(program))
        }

        /// Stores the programs that are entered by tail calls in their maps.
        pub(crate) fn populate_tail_calls(skeleton: &SampleSkel<'_>) -> libbpf_rs::Result<()> {
            $(
                $(#[$attribute])*
                {
                    $(connect(&skeleton.maps.$calls, 0 $(+ $index)?, &skeleton.progs.$name)?;)?
                }
            )*
            Ok(())
        }
    };
}

// `in MAP`: tail calls find the program in that map; `in MAP[INDEX]`: behind others.
programs! {
    sample_cpu, AtOverflows(Cpu), |it| it.samples(SampleSource::Cpu, WalkMode::Loop);
    sample_cpu_by_calls, AtOverflows(Cpu), |it| it.samples(SampleSource::Cpu, WalkMode::TailCalls);
    walk_cpu_by_calls in cpu_walks, WhenCalled, |it| it.samples(SampleSource::Cpu, WalkMode::TailCalls);
    sample_off_cpu, AtOverflows(OffCpu), |it| it.samples_switches(false, WalkMode::Loop);
    sample_off_cpu_by_calls, AtOverflows(OffCpu), |it| it.samples_switches(false, WalkMode::TailCalls);
    walk_off_cpu_by_calls in off_cpu_walks, WhenCalled, |it| it.samples_switches(false, WalkMode::TailCalls);
    sample_switch, AtSwitches, |it| it.samples_switches(true, WalkMode::Loop);
    sample_switch_by_calls, AtSwitches, |it| it.samples_switches(true, WalkMode::TailCalls);
    walk_switch_by_calls in switch_walks, WhenCalled, |it| it.samples_switches(true, WalkMode::TailCalls);
    sample_counter, AtOverflows(Counter), |it| it.samples(SampleSource::Counter, WalkMode::Loop);
    sample_counter_by_calls, AtOverflows(Counter), |it| it.samples(SampleSource::Counter, WalkMode::TailCalls);
    walk_counter_by_calls in counter_walks, WhenCalled, |it| it.samples(SampleSource::Counter, WalkMode::TailCalls);
    list_waits, InIterator, |it| it.samples(SampleSource::OffCpu, it.walk);
    sample_user_probe, AtProbes, |it| it.probes_programs(WalkMode::Loop);
    sample_user_probe_by_calls, AtProbes, |it| it.probes_programs(WalkMode::TailCalls);
    walk_user_probe_by_calls in user_probe_walks, WhenCalled, |it| it.probes_programs(WalkMode::TailCalls);
    sample_tracepoint_0, AtChosenTracepoint, |it| it.probes_tracepoint(0, WalkMode::Loop);
    sample_tracepoint_0_by_calls, AtChosenTracepoint, |it| it.probes_tracepoint(0, WalkMode::TailCalls);
    walk_tracepoint_0_by_calls in tracepoint_walks[0], WhenCalled, |it| it.probes_tracepoint(0, WalkMode::TailCalls);
    sample_tracepoint_1, AtChosenTracepoint, |it| it.probes_tracepoint(1, WalkMode::Loop);
    sample_tracepoint_1_by_calls, AtChosenTracepoint, |it| it.probes_tracepoint(1, WalkMode::TailCalls);
    walk_tracepoint_1_by_calls in tracepoint_walks[1], WhenCalled, |it| it.probes_tracepoint(1, WalkMode::TailCalls);
    sample_tracepoint_2, AtChosenTracepoint, |it| it.probes_tracepoint(2, WalkMode::Loop);
    sample_tracepoint_2_by_calls, AtChosenTracepoint, |it| it.probes_tracepoint(2, WalkMode::TailCalls);
    walk_tracepoint_2_by_calls in tracepoint_walks[2], WhenCalled, |it| it.probes_tracepoint(2, WalkMode::TailCalls);
    sample_tracepoint_3, AtChosenTracepoint, |it| it.probes_tracepoint(3, WalkMode::Loop);
    sample_tracepoint_3_by_calls, AtChosenTracepoint, |it| it.probes_tracepoint(3, WalkMode::TailCalls);
    walk_tracepoint_3_by_calls in tracepoint_walks[3], WhenCalled, |it| it.probes_tracepoint(3, WalkMode::TailCalls);
    sample_waker, AtWakeups, |it| it.samples(SampleSource::Waker, WalkMode::Loop);
    process_fork, AtTracepoint, |it| it.lists_children;
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

/// All loaded programs that run at overflows.
pub(crate) struct SamplingPrograms<'skeleton>(Vec<(SampleSource, &'skeleton ProgramMut<'skeleton>)>);

impl<'skeleton> SamplingPrograms<'skeleton> {
    pub(crate) fn new(programs: &'skeleton SampleProgs<'_>) -> Self {
        let at_overflows = |(runs, program)| match runs {
            ProgramTrigger::AtOverflows(source) => Some((source, program)),
            _ => None,
        };
        Self(loaded(programs).filter_map(at_overflows).collect())
    }

    /// The one for samples of this kind.
    pub(crate) fn get(&self, kind: SampleKind) -> Option<&'skeleton ProgramMut<'skeleton>> {
        self.0.iter().find(|(source, _)| *source == kind.source()).map(|(_, program)| *program)
    }
}

/// Prepares the programs of probes for links that place them in other programs.
pub(crate) fn attach_by_links(programs: &mut OpenSampleProgs<'_>) {
    programs.sample_user_probe.set_attach_type(ProgramAttachType::TraceUprobeMulti);
    programs.sample_user_probe_by_calls.set_attach_type(ProgramAttachType::TraceUprobeMulti);
    // Programs that call each other are of one type.
    programs.walk_user_probe_by_calls.set_attach_type(ProgramAttachType::TraceUprobeMulti);
}

/// The loaded program that runs at probes of users.
pub(crate) fn at_probes<'skeleton>(
    programs: &'skeleton SampleProgs<'_>,
) -> Option<&'skeleton ProgramMut<'skeleton>> {
    loaded(programs).find(|(runs, _)| *runs == ProgramTrigger::AtProbes).map(|(_, program)| program)
}

/// The loaded program of the tracepoint with this index among those of the run.
pub(crate) fn at_tracepoint<'skeleton>(
    programs: &'skeleton SampleProgs<'_>,
    index: usize,
) -> Option<&'skeleton ProgramMut<'skeleton>> {
    let chosen = loaded(programs).filter(|(runs, _)| *runs == ProgramTrigger::AtChosenTracepoint);
    chosen.map(|(_, program)| program).nth(index)
}

/// A program that isn't loaded has no descriptor.
fn is_loaded(program: &ProgramMut<'_>) -> bool {
    program.as_fd().as_raw_fd() >= 0
}

/// Makes tail calls through this entry of a map enter the program, if it is loaded.
fn connect(calls: &dyn MapCore, index: u32, program: &ProgramMut<'_>) -> libbpf_rs::Result<()> {
    if !is_loaded(program) {
        return Ok(());
    }
    let fd = program.as_fd().as_raw_fd();
    calls.update(&index.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use libbpf_rs::skel::{OpenSkel, SkelBuilder};
    use sidewinder_kind::{Counter, CounterRate, Kind, SampledCounter, SampledProbe};

    use super::*;
    use crate::counter::PerfCounter;
    use crate::load::Storage;
    use crate::skeleton::sample::SampleSkelBuilder;

    /// A kind for each program that samples.
    const KINDS: [Kind; 4] = [
        Kind::Cpu { samples_per_second: 100 },
        Kind::OffCpu,
        Kind::LockDelay,
        Kind::Counter(SampledCounter { counter: Counter::PageFaults, rate: CounterRate::Period(1) }),
    ];

    /// The programs that are loaded for these kinds, of which so many probes are at tracepoints, by name.
    fn selected(kinds: &KindSet, tracepoints: usize) -> BTreeSet<String> {
        selected_with(kinds, tracepoints, false)
    }

    /// The same, with context switches of a tracepoint or of events.
    fn selected_with(kinds: &KindSet, tracepoints: usize, traces_switches: bool) -> BTreeSet<String> {
        let mut storage = Storage::uninit();
        let mut open = SampleSkelBuilder::default().open(&mut storage).unwrap();
        let selection = ProgramSelection {
            kinds,
            tracepoints,
            walk: WalkMode::Loop,
            traces_switches,
            uses_process_list: false,
            lists_children: false,
            keeps_namespaced_tids: false,
            #[cfg(feature = "test-programs")]
            test_programs: false,
        };
        select(&mut open.progs, selection);
        let loaded = open.open_object().progs().filter(libbpf_rs::OpenProgramImpl::autoload);
        loaded.map(|program| program.name().to_string_lossy().into_owned()).collect()
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn what_is_not_sampled_has_no_program() {
        let cpu = KindSet::new(Kind::Cpu { samples_per_second: 19 });
        assert_eq!(selected(&cpu, 0), names(["process_exec", "sample_cpu"]));
        let probes = ["first", "second"].map(|name| Kind::Probe(SampledProbe::new(name, None)));
        let probes = probes.into_iter().fold(cpu, KindSet::with);
        assert_eq!(
            selected(&probes, 1),
            names(["process_exec", "sample_cpu", "sample_user_probe", "sample_tracepoint_0"])
        );
        assert_eq!(
            selected(&probes, 2),
            names(["process_exec", "sample_cpu", "sample_tracepoint_0", "sample_tracepoint_1"])
        );
    }

    #[test]
    fn context_switches_have_one_program_that_of_their_hook() {
        let off_cpu = KindSet::new(Kind::OffCpu);
        let programs = |traces_switches| selected_with(&off_cpu, 0, traces_switches);
        assert_eq!(programs(false), names(["process_exec", "sample_off_cpu", "list_waits"]));
        assert_eq!(programs(true), names(["process_exec", "sample_switch", "list_waits"]));
    }

    #[test]
    fn a_program_that_runs_at_overflows_has_a_counter() {
        let sources = RUNS.iter().filter_map(|runs| match runs {
            ProgramTrigger::AtOverflows(source) => Some(source),
            _ => None,
        });
        let [first, rest @ ..] = KINDS;
        let kinds = rest.into_iter().fold(KindSet::new(first), KindSet::with);
        let counted = |source: &SampleSource| {
            let of = |kind| SampleKind::of(kind, &kinds).is_some_and(|kind| kind.source() == *source);
            kinds.iter().any(|kind| of(kind) && PerfCounter::of(kind).is_some())
        };
        assert!(sources.clone().count() > 0 && sources.clone().all(counted));
    }
}
