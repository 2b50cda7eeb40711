//! Finds the files of probes in the roots of processes, and the places in them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_base::file_version::FileVersion;
use sidewinder_base::privilege;
use sidewinder_base::supervise::ThreadSupervisor;
use sidewinder_bpf::{OperandPlace, ProbeOperand, UserProbeSite};
use sidewinder_config::ProbePoint;
use sidewinder_process::{OpenError, PathTrust, Pid, ProcRoot, ProcessRoot};
use sidewinder_symbolize::{Image, Operand, OperandAt};

use super::probe_error::ProbeError;
use crate::user_probe::{ProgramProbe, UserProbe, find_places};

/// How long a thread may take for one process: symbol tables may have millions of names.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(300);
/// The most processes that wait for their files to be looked for. Others get probes when they run exec again, or through
/// another process that maps the same file.
const WAITING_MAX: usize = 4096;
/// The most files whose places are remembered.
const FILES_MAX: usize = 1024;

/// A file of a process, open, with the places of a probe in it.
type FoundFile = (FileVersion, Arc<File>, Arc<[UserProbeSite]>);

/// What was found for a probe in the root of a process.
#[derive(Debug)]
pub(super) struct ResolvedProbe {
    pub(super) probe: u8,
    pub(super) pid: Pid,
    pub(super) found: Result<FoundFile, ProbeError>,
}

/// The thread that finds files and places.
#[derive(Debug)]
pub(super) struct ProbeResolver {
    requests: Sender<Pid>,
    /// `None` ends what was found for a process.
    found: Receiver<Option<ResolvedProbe>>,
    in_progress: usize,
}

impl ProbeResolver {
    pub(super) fn start(probes: &[UserProbe], supervisor: &ThreadSupervisor) -> io::Result<Self> {
        let (requests, incoming) = mpsc::channel::<Pid>();
        let (outgoing, found) = mpsc::channel();
        let in_programs = (0..).zip(probes).filter_map(|(index, probe)| Some((index, probe.in_programs()?)));
        let mut finder = PlaceFinder { probes: in_programs.collect(), places: HashMap::new() };
        let heartbeat = supervisor.register("probes", HEARTBEAT_TIMEOUT);
        thread::Builder::new().name("probes".to_owned()).spawn(move || {
            privilege::drop_all_but(privilege::PROCESS_ACCESS);
            heartbeat.idle();
            for pid in incoming {
                heartbeat.beat(HEARTBEAT_TIMEOUT);
                let all = finder.find_all(pid).into_iter().map(Some).chain([None]);
                for resolved in all {
                    if outgoing.send(resolved).is_err() {
                        return;
                    }
                }
                heartbeat.idle();
            }
        })?;
        Ok(Self { requests, found, in_progress: 0 })
    }

    /// Looks for the files of all probes in the root of a process, unless too many others wait.
    pub(super) fn request(&mut self, pid: Pid) {
        if self.in_progress < WAITING_MAX && self.requests.send(pid).is_ok() {
            self.in_progress += 1;
        }
    }

    /// The number of processes whose files have not been found yet.
    pub(super) fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// The next that was found, without blocking.
    pub(super) fn try_next(&mut self) -> Option<ResolvedProbe> {
        self.next_by(Instant::now())
    }

    /// The next that is found by a deadline.
    pub(super) fn next_by(&mut self, deadline: Instant) -> Option<ResolvedProbe> {
        loop {
            match self.found.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()? {
                Some(found) => return Some(found),
                None => self.in_progress -= 1,
            }
            if self.in_progress == 0 {
                return None;
            }
        }
    }
}

/// Opens the file of a probe in the root of a process. Without the privilege to follow that, in our own root: the process has
/// the same file if both run in the same.
fn open_in_root(pid: Pid, probe: &ProgramProbe) -> Result<File, OpenError> {
    let open = |root: &ProcessRoot| {
        let path = probe.path.as_os_str().as_bytes().to_vec();
        root.open(std::iter::once(path), PathTrust::Operator).next().unwrap_or(Err(OpenError::NotFound))
    };
    let processes = ProcRoot::default();
    match ProcessRoot::from_pid(&processes, pid) {
        Ok(root) => open(&root),
        Err(OpenError::Permission) => {
            let own = ProcessRoot::own_in_place_of(&processes, pid)?;
            open(&own).map_err(|_| OpenError::Permission)
        }
        Err(failure) => Err(failure),
    }
}

/// Finds places, once in each version of a file.
struct PlaceFinder {
    probes: Vec<(u8, ProgramProbe)>,
    places: HashMap<(u8, FileVersion), Arc<[UserProbeSite]>>,
}

impl PlaceFinder {
    fn find_all(&mut self, pid: Pid) -> Vec<ResolvedProbe> {
        let probes = self.probes.clone();
        let resolve = |(index, probe): (u8, ProgramProbe)| {
            let opened = open_in_root(pid, &probe);
            let found = match opened {
                // A process that has just exited needs no probe.
                Err(OpenError::Gone) => return None,
                Err(source) => Err(ProbeError::Open { pid, source }),
                Ok(file) => self.find(index, &probe, pid, file),
            };
            Some(ResolvedProbe { probe: index, pid, found })
        };
        probes.into_iter().filter_map(resolve).collect()
    }

    fn find(
        &mut self,
        index: u8,
        probe: &ProgramProbe,
        pid: Pid,
        file: File,
    ) -> Result<FoundFile, ProbeError> {
        let open_failure = |source| ProbeError::Open { pid, source: OpenError::Io(source) };
        let key = FileVersion::from(&file.metadata().map_err(open_failure)?);
        let file = Arc::new(file);
        if let Some(places) = self.places.get(&(index, key)) {
            return Ok((key, file, Arc::clone(places)));
        }
        let image = Image::from(Arc::clone(&file));
        let places = find_places(probe, &image).map_err(|source| ProbeError::Place { pid, source })?;
        let is_return = matches!(probe.point, ProbePoint::Return { .. });
        let places: Arc<[UserProbeSite]> = places
            .into_iter()
            .map(|(site, operand)| UserProbeSite {
                offset: FileOffset(site.file_offset),
                semaphore: site.semaphore.map(FileOffset),
                is_return,
                operand: operand.map(operand_for_programs),
            })
            .collect();
        if self.places.len() >= FILES_MAX {
            self.places.clear();
        }
        self.places.insert((index, key), Arc::clone(&places));
        Ok((key, file, places))
    }
}

fn operand_for_programs(operand: Operand) -> ProbeOperand {
    let place = match operand.at {
        OperandAt::Constant(value) => OperandPlace::Constant(value),
        OperandAt::Register(register) => OperandPlace::Register(register),
        OperandAt::Memory { register, offset } => OperandPlace::Memory { register, offset },
    };
    ProbeOperand { place, bits: operand.bits, is_signed: operand.is_signed }
}
