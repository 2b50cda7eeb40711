//! Accounts for every interrupt that was due, independently of the programs that count them.
//!
//! The events' own clocks say how many interrupts were due on each CPU. Interrupts without a program run are `missed`,
//! unless the CPU was idle: an idle CPU of a virtual machine may get its clock interrupts late by whole periods, or not
//! at all. The kernel's idle time says how many interrupts that accounts for.

use std::collections::HashMap;
use std::fs;
use std::io;

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
    pub(crate) fn new(clock: &CounterEvents, since: Option<&IdleTimes>, now: &IdleTimes) -> io::Result<Self> {
        let slept_ns = |cpu| since.map_or(0, |since| now.since(since, cpu));
        let cpus = clock
            .expected_interrupts()?
            .into_iter()
            .map(|(cpu, due)| CpuInterruptCheck { cpu, expected: due, idle_ns: slept_ns(cpu) })
            .collect();
        Ok(Self { period: clock.period(), cpus })
    }

    /// For what nothing but the programs counts.
    pub(crate) const fn without_counter() -> Self {
        Self { period: None, cpus: Vec::new() }
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
        Interrupts { expected, outcomes, idle_inferred }
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

/// How long each CPU has been idle since boot, in nanoseconds, by CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct IdleTimes(HashMap<u32, u64>);

impl IdleTimes {
    /// Reads /proc/stat, which has it in clock ticks. If that can't be read, no idle time is known, and only interrupts
    /// that a program counted as idle are idle.
    pub(crate) fn read() -> Self {
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        fs::read_to_string("/proc/stat").map(|stat| Self::parse(&stat, tick_ns)).unwrap_or_default()
    }

    /// The lines `cpuN user nice system idle iowait ...` (proc_stat(5)).
    fn parse(stat: &str, tick_ns: u64) -> Self {
        let of_line = |line: &str| {
            let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
            let cpu = cpu.parse().ok()?;
            let mut sleep = fields.split_ascii_whitespace().skip(3).map(|field| field.parse::<u64>().ok());
            let ticks = sleep.next()??.checked_add(sleep.next()??)?;
            Some((cpu, ticks.saturating_mul(tick_ns)))
        };
        Self(stat.lines().filter_map(of_line).collect())
    }

    /// Adds the time between two reads, as if all had been read that much later.
    pub(crate) fn delay(&mut self, from: &Self, to: &Self) {
        for (cpu, idle_ns) in &mut self.0 {
            *idle_ns += to.since(from, *cpu);
        }
    }

    fn since(&self, before: &Self, cpu: u32) -> u64 {
        match (self.0.get(&cpu), before.0.get(&cpu)) {
            (Some(now), Some(before)) => now.saturating_sub(*before),
            _ => 0,
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
    fn sleep_is_idle_and_waiting_for_io() {
        let stat = "cpu  9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7\ncpu11 1 2 3 4 0 6\nintr 1 2 3\ncpu2 x\n";
        assert_eq!(IdleTimes::parse(stat, 10), IdleTimes([(0, 450), (11, 40)].into()));
    }
}
