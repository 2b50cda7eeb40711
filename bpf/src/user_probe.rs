//! Probes that users place in programs and at tracepoints: their events, their sites, and their hits.
//!
//! The kernel opens a probe's file by a path, which is that of a descriptor of ours: so it is the file that was found in the
//! target's root and checked, whatever its path leads to later.

mod attach;
mod error;
mod site;

use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libbpf_rs::{Link, ProgramMut};
use sidewinder_address::FileOffset;
use zerocopy::IntoBytes;

use self::attach::duplicate;
pub use self::attach::probe_user_probes;
pub(crate) use self::attach::{AttachWay, PlaceRequest};
pub use self::error::UserProbeError;
pub use self::site::{OperandPlace, ProbeOperand, UserProbeSite};
use crate::events::attach_to_event;
use crate::intf::{self, sw_cpu, sw_probe_hits, sw_probe_site};
use crate::memory::MappedArray;
use crate::opener::Opener;
use crate::tracepoint::{self, NumericArgument, TracepointError, preempt_count_from_rq};

/// Of `enum bpf_func_id`: since Linux 5.15.
const BPF_GET_ATTACH_COOKIE: u32 = 174;

impl UserProbeSite {
    fn in_map(self, probe: u8) -> sw_probe_site {
        let (operand, reg, offset) = match self.operand.map(|operand| operand.place) {
            None => (intf::SW_OPERAND_NONE, 0, 0),
            Some(OperandPlace::Constant(value)) => (intf::SW_OPERAND_CONSTANT, 0, value),
            Some(OperandPlace::Register(register)) => (intf::SW_OPERAND_REGISTER, register, 0),
            Some(OperandPlace::Memory { register, offset }) => (intf::SW_OPERAND_MEMORY, register, offset),
        };
        sw_probe_site {
            probe: probe.into(),
            is_return: self.is_return.into(),
            operand: operand as u8,
            reg,
            bits: self.operand.map_or(64, |operand| operand.bits),
            is_signed: self.operand.is_some_and(|operand| operand.is_signed).into(),
            reserved: [0; 7],
            offset,
        }
    }
}

/// The hits of a probe since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UserProbeHits {
    /// Hits of tasks in scope.
    pub hits: u64,
    /// Of these, those that were sampled.
    pub samples: u64,
    /// Hits for which no sample counts yet.
    pub uncounted: u64,
    /// The time that samples took, with what they take in the receiver, in nanoseconds.
    pub cost_ns: u64,
    /// The longest average distance between two sampled hits on any CPU, at the moment; 1 if each is sampled.
    pub period: u64,
}

/// The sites of all probes, and their hits.
#[derive(Debug)]
pub(crate) struct UserProbes {
    opener: Opener,
    /// Settings and counters of each CPU.
    cpus: Rc<MappedArray>,
    sites: MappedArray,
    /// What the sites are, by their index.
    used_sites: Vec<(u8, UserProbeSite)>,
    has_cookies: bool,
    way: AttachWay,
    attachments: Vec<Attachment>,
}

/// The program at a site of a file.
#[derive(Debug)]
struct Attachment {
    /// `None`: every process that maps the file.
    process: Option<u32>,
    _hold: AttachmentHold,
}

/// What ends an attachment when it is dropped.
#[derive(Debug)]
enum AttachmentHold {
    /// A link that places the program itself.
    Link(#[expect(dead_code, reason = "dropping it detaches")] OwnedFd),
    /// A link to a perf event.
    PerfEvent(#[expect(dead_code, reason = "dropping it detaches")] Link),
}

impl UserProbes {
    /// With the way for which the program was loaded.
    pub(crate) fn new(opener: Opener, cpus: Rc<MappedArray>, sites: MappedArray, way: AttachWay) -> Self {
        let has_cookies = sites.entries() > 1
            && libbpf_rs::ProgramType::Kprobe.is_helper_supported(BPF_GET_ATTACH_COOKIE).unwrap_or(false);
        Self { opener, cpus, sites, used_sites: Vec::new(), has_cookies, way, attachments: Vec::new() }
    }

    /// Sets the share of each CPU's time that the samples of a probe may take, from 0 to 1.
    pub(crate) fn set_budget(&self, probe: u8, share: f64) {
        let budget_ns = ((1_u64 << intf::SW_PROBE_WINDOW_SHIFT) as f64 * share.clamp(0.0, 1.0)) as u64;
        for cpu in 0..self.cpus.entries() {
            self.word(cpu, probe, offset_of!(sw_probe_hits, budget_ns)).store(budget_ns, Ordering::Relaxed);
        }
    }

    /// Attaches the program to a site of a file, for a process or for all.
    pub(crate) fn attach(
        &mut self,
        program: &ProgramMut<'_>,
        probe: u8,
        file: &Arc<File>,
        site: UserProbeSite,
        process: Option<u32>,
    ) -> Result<(), UserProbeError> {
        // Files differ only in where the kernel attaches the program.
        let same = UserProbeSite { offset: FileOffset(0), semaphore: None, ..site };
        let known = self.used_sites.iter().position(|used| *used == (probe, same));
        let index = known.unwrap_or(self.used_sites.len());
        if index >= intf::SW_PROBE_SITES_MAX as usize {
            return Err(UserProbeError::TooManySites);
        }
        if index > 0 && !self.has_cookies {
            return Err(UserProbeError::NoCookies);
        }
        if known.is_none() {
            // No program reads a site that has no attachment.
            self.sites.write(index, 0, site.in_map(probe).as_bytes());
        }
        let cookie = index as u64;
        let link = match self.way {
            AttachWay::Link => Some((duplicate(program.as_fd())?, cookie)),
            AttachWay::PerfEvent => None,
        };
        let request = PlaceRequest { file: Arc::clone(file), site, process, link };
        let opened = self.opener.run(move || request.open()).map_err(UserProbeError::Opener)??;
        let hold = match self.way {
            AttachWay::Link => AttachmentHold::Link(opened),
            AttachWay::PerfEvent => {
                let cookie = self.has_cookies.then_some(cookie);
                let link = attach_to_event(program, opened, cookie);
                AttachmentHold::PerfEvent(link.map_err(|source| UserProbeError::Attach(Some(source)))?)
            }
        };
        if known.is_none() {
            self.used_sites.push((probe, same));
        }
        self.attachments.push(Attachment { process, _hold: hold });
        Ok(())
    }

    /// Attaches its program to a tracepoint, the one with this index among those of the run, for all tasks.
    pub(crate) fn attach_tracepoint(
        &mut self,
        program: &ProgramMut<'_>,
        probe: u8,
        index: usize,
        name: &str,
        value: Option<NumericArgument>,
    ) -> Result<(), TracepointError> {
        preempt_count_from_rq().ok_or(TracepointError::NoContexts)?;
        let site = sw_probe_site {
            probe: probe.into(),
            is_return: 0,
            operand: value.map_or(intf::SW_OPERAND_NONE, |_| intf::SW_OPERAND_ARGUMENT) as u8,
            reg: value.map_or(0, |value| value.index),
            bits: value.map_or(64, |value| value.bits),
            is_signed: value.is_some_and(|value| value.is_signed).into(),
            reserved: [0; 7],
            offset: 0,
        };
        // No program reads the site of a tracepoint that it is not attached to.
        self.sites.write(intf::SW_PROBE_SITES_MAX as usize + index, 0, site.as_bytes());
        let program = program.as_fd().try_clone_to_owned().map_err(TracepointError::Refused)?;
        let tracepoint = name.to_owned();
        let open = move || tracepoint::open(&program, &tracepoint);
        let link = self.opener.run(open).map_err(TracepointError::Opener)??;
        self.attachments.push(Attachment { process: None, _hold: AttachmentHold::Link(link) });
        Ok(())
    }

    /// Reserves the first site, which hits without a cookie have, for a probe that others attach.
    pub(crate) fn await_others(&mut self, probe: u8) {
        let site = UserProbeSite { offset: FileOffset(0), semaphore: None, is_return: false, operand: None };
        self.sites.write(self.used_sites.len(), 0, site.in_map(probe).as_bytes());
        self.used_sites.push((probe, site));
    }

    /// Takes the probes of a process out.
    pub(crate) fn detach_process(&mut self, process: u32) {
        self.attachments.retain(|attachment| attachment.process != Some(process));
    }

    /// Takes all probes out of the programs.
    pub(crate) fn detach(&mut self) {
        self.attachments.clear();
    }

    pub(crate) fn hits(&self, probe: u8) -> UserProbeHits {
        let mut all = UserProbeHits { period: 1, ..UserProbeHits::default() };
        for cpu in 0..self.cpus.entries() {
            let read = |offset| self.word(cpu, probe, offset).load(Ordering::Relaxed);
            // The smaller ones first, since they grow meanwhile.
            let sampled = read(offset_of!(sw_probe_hits, sampled));
            let lost_taken = read(offset_of!(sw_probe_hits, lost_taken));
            let (hits, lost) = (read(offset_of!(sw_probe_hits, hits)), read(offset_of!(sw_probe_hits, lost)));
            all.hits += hits;
            all.uncounted += hits.saturating_sub(sampled) + lost.saturating_sub(lost_taken);
            all.samples += read(offset_of!(sw_probe_hits, samples));
            all.cost_ns += read(offset_of!(sw_probe_hits, cost_ns));
            let period = offset_in_cpu(probe, offset_of!(sw_probe_hits, period));
            all.period = all.period.max(self.cpus.atomic_u32(cpu, period).load(Ordering::Relaxed).into());
        }
        all
    }

    fn word(&self, cpu: usize, probe: u8, offset: usize) -> &std::sync::atomic::AtomicU64 {
        self.cpus.atomic_u64(cpu, offset_in_cpu(probe, offset))
    }
}

fn offset_in_cpu(probe: u8, offset: usize) -> usize {
    offset_of!(sw_cpu, probes) + usize::from(probe) * size_of::<sw_probe_hits>() + offset
}
