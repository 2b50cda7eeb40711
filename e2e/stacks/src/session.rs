//! Stops one program many times.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sidewinder_e2e_corpus::{Gated, Subject};
use sidewinder_e2e_judge::INJECTED;
use sidewinder_e2e_judge::elf::Elf;
use sidewinder_e2e_support::observe;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

use super::compare::{Ground, Ours, Theirs, compare};
use super::framehop::Framehop;
use super::gdb::{Gdb, Look};
use super::space::{Place, Space};
use super::trigger::Program;
use super::{Comparison, Doctored};

/// Longer than any session: programs run until they are killed.
const SECONDS: u32 = 1_000_000;
/// The profiler's own interrupts are in the way: as few of them as can be.
const SAMPLES_PER_SECOND: &str = "1";
/// What the clocks of two programs may differ by.
const CLOCK_ERROR_NS: u64 = 2_000_000;
/// How many stops one process is held for, before the next one of the program is looked for.
const STOPS_PER_PROCESS: u32 = 100;
/// A process that is found waiting this often is let go; another one may be computing.
const WAITS_MAX: u32 = 5;
/// After so many processes that could not be stopped, the program is given up.
const FAILURES_MAX: u32 = 20;

/// A stop, with what gdb and framehop make of it.
struct Stop {
    tid: u32,
    /// When the sample was taken, by the time of day.
    start_ns: u64,
    end_ns: u64,
    gdb: Theirs,
    framehop: Theirs,
}

/// Stops a program `stops` times and compares each stack. `told` hears of every stop.
///
/// # Errors
/// When the program, the profiler or gdb cannot be run.
pub fn stop_and_compare(
    subject: &Subject,
    doctored: Option<&Doctored>,
    stops: u32,
    seed: u64,
    told: impl Fn(),
) -> Result<Comparison> {
    let mut all = Comparison::default();
    let mut random = StdRng::seed_from_u64(seed);
    let mut left = stops as usize;
    // A program that gives up under so many interruptions is started again.
    while left > 0 {
        let (made, comparison) = run(subject, doctored, left, &mut random, &told)
            .with_context(|| format!("after {} stops of {stops}", stops as usize - left))?;
        left -= made;
        all.merge(comparison);
    }
    Ok(all)
}

/// One life of a program: how many stops it has seen, one at the least, and what they came to.
fn run(
    subject: &Subject,
    doctored: Option<&Doctored>,
    stops: usize,
    random: &mut StdRng,
    told: impl Fn(),
) -> Result<(usize, Comparison)> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("out.otlp");
    let mut program = Gated::start(subject, SECONDS)?;
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", SAMPLES_PER_SECOND, "-p", &program.pid().to_string(), "-o"]).arg(&output);
    let profiler = Running::start_sampling(command)?;
    let mut stopper = Stopper {
        trigger: Program::of(profiler.pid())?,
        gdb: Gdb::start()?,
        framehop: Framehop::reading(instead(doctored)),
        original: doctored.map(|doctored| doctored.original.clone()),
        random,
        stops: Vec::new(),
        told,
    };
    program.open()?;
    let collected = stopper.collect(&mut program, stops);
    drop(program);
    let ended = profiler.stop()?;
    if stopper.stops.is_empty() {
        collected?;
        bail!("the program was over at once");
    }
    ensure!(ended.status.success(), "the profiler ended with {}:\n{}", ended.status, ended.log);
    let received = Received::from_otlp_file(&output)?;
    Ok((stopper.stops.len(), compare_all(&stopper.stops, &received, doctored)))
}

fn instead(doctored: Option<&Doctored>) -> HashMap<Arc<str>, PathBuf> {
    let pairs = doctored.iter().map(|d| (Arc::from(d.path.to_string_lossy()), d.original.clone()));
    pairs.collect()
}

struct Stopper<'a, T> {
    trigger: Program,
    gdb: Gdb,
    framehop: Framehop,
    original: Option<PathBuf>,
    random: &'a mut StdRng,
    stops: Vec<Stop>,
    told: T,
}

impl<T: Fn()> Stopper<'_, T> {
    /// Stops the program until it has been stopped often enough, or is over.
    fn collect(&mut self, program: &mut Gated, stops: usize) -> Result<()> {
        let mut failures = 0;
        while self.stops.len() < stops {
            let before = self.stops.len();
            thread::sleep(Duration::from_millis(self.random.random_range(20..100)));
            if program.has_ended()? {
                return Ok(());
            }
            let held = self.hold_one(program.pid(), stops);
            if held.is_err() {
                // Whatever has come of gdb.
                self.gdb = Gdb::start()?;
            }
            failures = if self.stops.len() > before { 0 } else { failures + 1 };
            if failures == FAILURES_MAX {
                return held.context("the program is never found computing");
            }
        }
        Ok(())
    }

    /// Stops one process of a group many times.
    fn hold_one(&mut self, group: u32, stops: usize) -> Result<()> {
        let pid = observe::busiest_of_group(group).context("no process is left")?;
        self.gdb.attach(pid, self.original.as_ref())?;
        let mut waits = 0;
        for _ in 0..STOPS_PER_PROCESS {
            if self.stops.len() >= stops || waits == WAITS_MAX {
                break;
            }
            self.gdb.run_on(Duration::from_micros(self.random.random_range(0..20_000)))?;
            let thread = self.random.random();
            if self.gdb.step(self.random.random_range(1..=64), Some(thread))? {
                self.stop(pid)?;
            } else {
                waits += 1;
            }
        }
        self.gdb.detach()
    }

    /// Collects the stacks of the thread that gdb has stopped.
    fn stop(&mut self, pid: u32) -> Result<()> {
        let look = self.gdb.look()?;
        let space = Space::of(pid)?;
        let framehop = self.framehop.frames(&look, &space);
        let armed = self.trigger.sample_at(look.tid, look.pc)?;
        let start_ns = unix_ns();
        self.gdb.step(1, None)?;
        let end_ns = unix_ns();
        if armed.has_fired()? {
            let (gdb, framehop) = (theirs_of_gdb(&look, &space), theirs(&framehop, &look, &space));
            self.stops.push(Stop { tid: look.tid, start_ns, end_ns, gdb, framehop });
            (self.told)();
        }
        Ok(())
    }
}

fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn theirs_of_gdb(look: &Look, space: &Space) -> Theirs {
    let frames: Vec<u64> = look.frames.iter().map(|(pc, _)| *pc).collect();
    theirs(&frames, look, space)
}

/// Frames of which gdb says which are of signals. Those of programs that don't return from handlers through the C library
/// are told by their code.
pub(super) fn theirs(frames: &[u64], look: &Look, space: &Space) -> Theirs {
    let frames = &frames[..led_to_code(frames, space)];
    let by_gdb: BTreeSet<u64> =
        look.frames.iter().filter(|(_, is_signal_frame)| *is_signal_frame).map(|(pc, _)| *pc).collect();
    Theirs {
        places: places(frames.iter().copied(), space),
        are_signal_frames: frames.iter().map(|pc| by_gdb.contains(pc) || space.is_sigreturn(*pc)).collect(),
    }
}

/// How many frames there are before the first caller that is no code: who was led there has gone beyond the outermost
/// frame without seeing it, as gdb behind Go's and those of some threads.
fn led_to_code(frames: &[u64], space: &Space) -> usize {
    // QEMU has the code that handlers return to at the start of a mapping.
    let is_code = |pc: &u64| space.is_code(pc.wrapping_sub(1)) || space.is_sigreturn(*pc);
    let callers = frames.iter().skip(1).take_while(|pc| is_code(pc)).count();
    frames.len().min(1 + callers)
}

/// Each address in the terms of the file that its call is in.
fn places(frames: impl Iterator<Item = u64>, space: &Space) -> Vec<Place> {
    let place = |(at, pc): (usize, u64)| match at {
        0 => space.place(pc),
        _ => space.place(pc.wrapping_sub(1)).behind(),
    };
    frames.enumerate().map(place).collect()
}

fn compare_all(stops: &[Stop], received: &Received, doctored: Option<&Doctored>) -> Comparison {
    let mut by_thread: HashMap<i64, Vec<DecodedEvent<'_>>> = HashMap::new();
    for event in received.events() {
        by_thread.entry(event.sample.thread_id().unwrap_or_default()).or_default().push(event);
    }
    let mut comparison = Comparison::default();
    let files = Files::new(instead(doctored));
    for stop in stops {
        let events = by_thread.get(&stop.tid.into()).map_or(&[][..], Vec::as_slice);
        match sample_of(stop, events) {
            Some(ours) => {
                let (gdb, framehop) = (files.with_injected(&stop.gdb), files.with_injected(&stop.framehop));
                let difference = compare(&ours, &gdb, &framehop, |place| files.ground(place));
                comparison.add(&ours, difference);
            }
            None => comparison.unsampled += 1,
        }
    }
    comparison
}

/// What the profiler has of a stop.
fn sample_of(stop: &Stop, events: &[DecodedEvent<'_>]) -> Option<Ours> {
    let window = stop.start_ns - CLOCK_ERROR_NS..stop.end_ns + CLOCK_ERROR_NS;
    let candidates = events.iter().filter(|event| window.contains(&event.time_unix_ns)).map(ours);
    let mut candidates = candidates.filter(|ours| ours.places.first() == stop.gdb.places.first());
    candidates.next()
}

fn ours(event: &DecodedEvent<'_>) -> Ours {
    let cut = event.sample.outcome().map(str::to_owned);
    let mut frames = event.sample.stack.iter().map(|frame| &**frame).collect::<Vec<&DecodedFrame>>();
    if cut.is_some() {
        // The mark that says so.
        frames.pop();
    }
    let place = |frame: &DecodedFrame| match (&frame.mapping, frame.file_offset()) {
        // An interrupt of the clock, which is no stop.
        _ if frame.frame_type() == Some(FrameType::Kernel) => Place::Memory(u64::MAX),
        (Some(mapping), Some(offset)) => Place::File(Arc::clone(&mapping.filename), offset),
        _ => Place::Memory(frame.address),
    };
    Ours { places: frames.into_iter().map(place).collect(), cut }
}

/// What files say of places.
pub(super) struct Files {
    instead: HashMap<Arc<str>, PathBuf>,
    read: RefCell<HashMap<Arc<str>, Option<Elf>>>,
}

impl Files {
    pub(super) fn new(instead: HashMap<Arc<str>, PathBuf>) -> Self {
        Self { instead, read: RefCell::default() }
    }

    /// Asks the file of a place about its address there.
    fn ask<T>(&self, place: &Place, question: impl Fn(&Elf, u64) -> T) -> Option<T> {
        let Place::File(path, offset) = place else { return None };
        let mut read = self.read.borrow_mut();
        let elf = read.entry(Arc::clone(path)).or_insert_with(|| {
            Elf::read(self.instead.get(path).map_or(Path::new(&**path), PathBuf::as_path)).ok()
        });
        let elf = elf.as_ref()?;
        Some(question(elf, elf.svma_of_file_offset(*offset)?))
    }

    pub(super) fn ground(&self, place: &Place) -> Ground {
        match (place, self.ask(place, |elf, svma| elf.rule_at(svma).is_some())) {
            (Place::Memory(_), _) => Ground::NoFile,
            (Place::File(..), Some(true)) => Ground::Rule,
            (Place::File(..), _) => Ground::NoRule,
        }
    }

    /// Whether a place is in one of these functions.
    pub(super) fn is_in(&self, place: &Place, functions: &[&str]) -> bool {
        let has_name =
            |elf: &Elf, svma| elf.names_at(svma).iter().any(|name| functions.contains(&name.as_str()));
        self.ask(place, has_name) == Some(true)
    }

    /// With the functions that signal handlers inject marked as what they are like: frames of signals.
    fn with_injected(&self, theirs: &Theirs) -> Theirs {
        let marked = theirs.places.iter().zip(&theirs.are_signal_frames);
        let marked = marked.map(|(place, marked)| *marked || self.is_in(place, &INJECTED));
        Theirs { places: theirs.places.clone(), are_signal_frames: marked.collect() }
    }
}
