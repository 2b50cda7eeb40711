//! Accounts for every interrupt that was due, independently of the programs that count them.
//!
//! The events' own clocks say how many interrupts were due on each CPU. Interrupts without a program run are `missed`,
//! unless the CPU was idle: an idle CPU of a virtual machine may get its clock interrupts late by whole periods, or not
//! at all. The kernel's idle time says how many interrupts that accounts for.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::AddAssign;

use crate::events::CounterEvents;
use crate::outcome::Outcome;
use sidewinder_kind::CpuIds;

/// Interrupts since the start, by outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interrupts {
    /// The number of interrupts that were due; if nothing but the programs counts them, the number that these counted.
    pub expected: u64,
    /// By outcome.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Idle interrupts without a program run, inferred from idle time.
    pub idle_inferred: u64,
    /// How much of the time of the sampled CPUs the hypervisor has taken: the usual reason for interrupts that were missed. Of the
    /// CPU clock alone.
    pub steal: StealTime,
}

/// How long virtual CPUs were ready to run while their host ran something else, of all their time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StealTime {
    /// Steal time, in nanoseconds, summed over CPUs.
    pub stolen_ns: u64,
    /// All time, in nanoseconds, summed over CPUs.
    pub total_ns: u64,
}

impl StealTime {
    /// The share of steal time (0 to 1); `None` if no time is known.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.total_ns > 0).then(|| self.stolen_ns as f64 / self.total_ns as f64)
    }

    /// The time from an earlier reading on.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            stolen_ns: self.stolen_ns.saturating_sub(before.stolen_ns),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
        }
    }
}

impl AddAssign for StealTime {
    fn add_assign(&mut self, more: Self) {
        self.stolen_ns += more.stolen_ns;
        self.total_ns += more.total_ns;
    }
}

impl Interrupts {
    /// The sum of those of two kinds.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (outcome, count) in &other.outcomes {
            match self.outcomes.iter_mut().find(|(known, _)| known == outcome) {
                Some((_, sum)) => *sum += count,
                None => self.outcomes.push((*outcome, *count)),
            }
        }
        self.expected += other.expected;
        self.idle_inferred += other.idle_inferred;
        self.steal += other.steal;
        self
    }

    /// Interrupts without a program run on CPUs that weren't idle.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.expected.saturating_sub(self.outcomes.iter().map(|(_, count)| count).sum())
    }
}

/// Due interrupts and idle time of each CPU since the events were opened.
#[derive(Clone, Debug)]
pub(crate) struct InterruptCheck {
    /// In the unit of the counter, which is nanoseconds for the clock; `None`: it varies, and nothing says how many interrupts
    /// were due.
    period: Option<u64>,
    cpus: Vec<CpuInterruptCheck>,
    steal: StealTime,
}

#[derive(Clone, Copy, Debug)]
struct CpuInterruptCheck {
    cpu: u32,
    expected: u64,
    idle_ns: u64,
}

impl InterruptCheck {
    /// Reads the clocks of events that were opened when `since` was read, and that have advanced until `now`. `None`: the
    /// events don't run while a CPU is idle.
    pub(crate) fn new(clock: &CounterEvents, since: Option<&CpuTimes>, now: &CpuTimes) -> io::Result<Self> {
        let slept_ns = |cpu| since.map_or(0, |since| now.since(since, cpu).idle_ns);
        let cpus = clock
            .expected_interrupts()?
            .into_iter()
            .map(|(cpu, due)| CpuInterruptCheck { cpu, expected: due, idle_ns: slept_ns(cpu) })
            .collect();
        Ok(Self { period: clock.period(), cpus, steal: StealTime::default() })
    }

    /// For what nothing but the programs counts.
    pub(crate) fn without_counter() -> Self {
        Self { period: None, cpus: Vec::new(), steal: StealTime::default() }
    }

    /// The same with the steal time of the sampled CPUs.
    pub(crate) fn with_steal(self, steal: StealTime) -> Self {
        Self { steal, ..self }
    }

    /// Combines this with the counts of the programs, by CPU and outcome.
    pub(crate) fn interrupts(&self, counted: impl Fn(u32, Outcome) -> u64, cpus: &CpuIds) -> Interrupts {
        let idle_inferred = |period| self.cpus.iter().map(|cpu| cpu.idle_inferred(&counted, period)).sum();
        let idle_inferred = self.period.map_or(0, idle_inferred);
        let sum = |outcome| cpus.iter().map(|cpu| counted(cpu, outcome)).sum::<u64>();
        let inferred = |outcome| if outcome == Outcome::Idle { idle_inferred } else { 0 };
        let outcomes = Outcome::ALL.iter().map(|outcome| (*outcome, sum(*outcome) + inferred(*outcome)));
        let outcomes: Vec<_> = outcomes.collect();
        let expected = match self.period {
            Some(_) => self.cpus.iter().map(|cpu| cpu.expected).sum(),
            None => outcomes.iter().map(|(_, count)| count).sum(),
        };
        Interrupts { expected, outcomes, idle_inferred, steal: self.steal }
    }
}

/// The longest time that handling an interrupt takes from the idle time around it: 5 to 10 us in a virtual machine.
const HANDLING_NS: u64 = 10_000;

impl CpuInterruptCheck {
    fn idle_inferred(&self, counted: &impl Fn(u32, Outcome) -> u64, period_ns: u64) -> u64 {
        let heard: u64 = Outcome::ALL.iter().map(|outcome| counted(self.cpu, *outcome)).sum();
        let asleep = self.idle_ns / period_ns.saturating_sub(HANDLING_NS).max(period_ns / 2).max(1);
        asleep.saturating_sub(counted(self.cpu, Outcome::Idle)).min(self.expected.saturating_sub(heard))
    }
}

/// How each CPU has spent its time since boot, by CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuTimes(HashMap<u32, CpuTime>);

/// How a CPU has spent its time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CpuTime {
    /// Idle, and waiting for I/O.
    idle_ns: u64,
    /// Ready to run while the host ran something else.
    steal_ns: u64,
    total_ns: u64,
}

impl CpuTimes {
    /// Reads /proc/stat, which has them in clock ticks. If that can't be read, no idle time is known, and only interrupts
    /// that a program counted as idle are idle.
    pub(crate) fn read() -> Self {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        fs::read_to_string("/proc/stat").map(|stat| Self::parse(&stat, tick_ns)).unwrap_or_default()
    }

    /// The lines `cpuN user nice system idle iowait irq softirq steal ...` (proc_stat(5)). Guest time, which comes last, is
    /// counted as user and nice time already.
    fn parse(stat: &str, tick_ns: u64) -> Self {
        let of_line = |line: &str| {
            let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
            let cpu = cpu.parse().ok()?;
            let fields = fields.split_ascii_whitespace().take(8).map(str::parse::<u64>);
            let ticks: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
            let ns = |ticks: u64| ticks.saturating_mul(tick_ns);
            let idle_ns = ns(ticks.get(3)?.checked_add(*ticks.get(4)?)?);
            let steal_ns = ns(ticks.get(7).copied().unwrap_or(0));
            let total_ns = ns(ticks.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks)));
            Some((cpu, CpuTime { idle_ns, steal_ns, total_ns }))
        };
        Self(stat.lines().filter_map(of_line).collect())
    }

    /// Adds the time between two reads, as if all had been read that much later.
    pub(crate) fn delay(&mut self, from: &Self, to: &Self) {
        for (cpu, time) in &mut self.0 {
            let between = to.since(from, *cpu);
            time.idle_ns += between.idle_ns;
            time.steal_ns += between.steal_ns;
            time.total_ns += between.total_ns;
        }
    }

    /// The steal time of some CPUs since an earlier read.
    pub(crate) fn steal_since(&self, before: &Self, cpus: &CpuIds) -> StealTime {
        let mut steal = StealTime::default();
        for time in cpus.iter().map(|cpu| self.since(before, cpu)) {
            steal += StealTime { stolen_ns: time.steal_ns, total_ns: time.total_ns };
        }
        steal
    }

    fn since(&self, before: &Self, cpu: u32) -> CpuTime {
        match (self.0.get(&cpu), before.0.get(&cpu)) {
            (Some(now), Some(before)) => CpuTime {
                idle_ns: now.idle_ns.saturating_sub(before.idle_ns),
                steal_ns: now.steal_ns.saturating_sub(before.steal_ns),
                total_ns: now.total_ns.saturating_sub(before.total_ns),
            },
            _ => CpuTime::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    fn interrupt_check(expected: u64, slept_ms: u64) -> InterruptCheck {
        InterruptCheck {
            period: Some(PERIOD_NS),
            steal: StealTime::default(),
            cpus: vec![CpuInterruptCheck { cpu: 0, expected, idle_ns: slept_ms * 1_000_000 }],
        }
    }

    /// The interrupts of one CPU, given how many idle and complete ones its programs counted.
    fn interrupts(witness: &InterruptCheck, idle: u64, complete: u64) -> Interrupts {
        let counted = |_, outcome| match outcome {
            Outcome::Idle => idle,
            Outcome::Complete => complete,
            _ => 0,
        };
        witness.interrupts(counted, &CpuIds::from_iter([0]))
    }

    #[test]
    fn what_a_cpu_slept_through_is_idle_and_what_it_lost_while_awake_is_missed() {
        let asleep = interrupts(&interrupt_check(1_000, 990), 0, 0);
        assert_eq!((asleep.idle_inferred, asleep.missed()), (1_000, 0));
        let half = interrupts(&interrupt_check(1_000, 495), 250, 480);
        assert_eq!((half.idle_inferred, half.missed()), (250, 20));
        let awake = interrupts(&interrupt_check(1_000, 0), 0, 900);
        assert_eq!((awake.idle_inferred, awake.missed()), (0, 100));
    }

    #[test]
    fn no_more_is_inferred_than_was_due() {
        let all_heard = interrupts(&interrupt_check(1_000, 1_500), 400, 600);
        assert_eq!((all_heard.idle_inferred, all_heard.missed()), (0, 0));
    }

    #[test]
    fn without_a_steady_period_what_was_heard_was_due() {
        let varying = InterruptCheck { period: None, ..interrupt_check(0, 990) };
        let found = interrupts(&varying, 3, 7);
        assert_eq!((found.expected, found.idle_inferred, found.missed()), (10, 0, 0));
    }

    #[test]
    fn sleep_is_idle_and_waiting_for_io_and_guests_are_no_further_time() {
        let stat = "cpu  9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8 9 1\ncpu11 1 2 3 4 0 6\nintr 1 2 3\ncpu2 x\n";
        let time = |idle_ns, steal_ns, total_ns| CpuTime { idle_ns, steal_ns, total_ns };
        assert_eq!(
            CpuTimes::parse(stat, 10),
            CpuTimes([(0, time(450, 80, 720)), (11, time(40, 0, 160))].into())
        );
    }

    #[test]
    fn steal_time_is_summed_over_the_sampled_cpus_without_pauses() {
        let read = |steal: u64| {
            let line = |cpu| format!("cpu{cpu} {} 0 0 0 0 0 0 {steal} 0 0\n", 100 - steal);
            CpuTimes::parse(&(line(0) + &line(1) + &line(2)), 1)
        };
        let mut before = CpuTimes::parse("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n", 1);
        let sampled = CpuIds::from_iter([0, 2]);
        let steal = read(5).steal_since(&before, &sampled);
        // The third CPU came later.
        assert_eq!(steal, StealTime { stolen_ns: 5, total_ns: 100 });
        assert_eq!(steal.share(), Some(0.05));
        assert_eq!(StealTime::default().share(), None);
        before.delay(&before.clone(), &read(5));
        assert_eq!(read(5).steal_since(&before, &sampled), StealTime::default());
    }
}
