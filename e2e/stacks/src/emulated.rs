//! Stops programs for arm64, which QEMU runs in its user mode and gdb holds through QEMU.
//!
//! No eBPF program runs there: what is compared is a walk by the rows of `receiver/unwind` and the steps of `bpf/unwind-table`,
//! which the eBPF programs take, too. Return addresses are not signed, since QEMU doesn't tell gdb what to strip.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sidewinder_address::{Avma, Svma};
use sidewinder_e2e_debian::arm64;
use sidewinder_e2e_judge::LANDING;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::workload::{
    LADDER, LADDER_FP, LADDER_GO, LADDER_SIGNED, Program, REC, SIGNALS, SIGNALS_SIGNED, THROWS,
};
use sidewinder_unwind_table::{Architecture, Entry, FrameRegisters, Memory, Rule, StepError, UnwindTable};
use tempfile::TempDir;

use super::Comparison;
use super::compare::{Ground, Ours, compare};
use super::framehop::{Framehop, code_segments};
use super::gdb::{Gdb, Look};
use super::session::{Files, theirs, theirs_of_gdb};
use super::space::{Place, Space};

/// Where Debian's cross compilers have the libraries.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// All extensions, but signatures of return addresses; and registers of SVE, which gdb doesn't find in QEMU's signal frames.
const CPU: &str = "max,pauth=off,sve=off";
/// Longer than any session.
const SECONDS: &str = "1000000";
/// After so long, programs are computing. gdb doesn't know the libraries of one that starts.
const START: Duration = Duration::from_millis(500);
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// A program that is found waiting so often is given up.
const WAITS_MAX: u32 = 100;
const FRAMES_MAX: usize = 8192;

/// A program for arm64, and how it is run.
#[derive(Debug)]
pub struct Emulated {
    /// Its name.
    pub name: &'static str,
    program: PathBuf,
    /// Behind its time.
    arguments: &'static [&'static str],
}

/// All programs, compiled. Of Rust that which `make build-arm64` has made, if it is there.
///
/// # Errors
/// When a compiler is missing, or Debian's archive.
pub fn programs() -> Result<Vec<Emulated>> {
    const COMPILED: [(&str, Program, &[&str]); 8] = [
        ("ladder", LADDER, &["300"]),
        ("ladder-pac", LADDER_SIGNED, &["300"]),
        ("ladder-fp", LADDER_FP, &["300"]),
        ("ladder-go", LADDER_GO, &["300"]),
        ("rec", REC, &["300"]),
        ("signals", SIGNALS, &[]),
        ("signals-pac", SIGNALS_SIGNED, &[]),
        ("throws", THROWS, &["30"]),
    ];
    let mut programs = Vec::new();
    for (name, program, arguments) in COMPILED {
        programs.push(Emulated { name, program: program.compiled_for_arm64()?, arguments });
    }
    programs.push(Emulated {
        name: "rec-musl",
        program: arm64::compiled_with_musl(REC)?,
        arguments: &["300"],
    });
    let rust = paths::target()?.join("arm64/ladder-rust");
    if rust.is_file() {
        programs.push(Emulated { name: "ladder-rust", program: rust, arguments: &["300"] });
    }
    Ok(programs)
}

impl Emulated {
    /// Stops the program `stops` times and compares each stack. `told` hears of every stop.
    ///
    /// # Errors
    /// When QEMU or gdb cannot be run, or the program is never found computing.
    pub fn stop_and_compare(&self, stops: u32, seed: u64, told: impl Fn()) -> Result<Comparison> {
        let mut random = StdRng::seed_from_u64(seed);
        let running = Running::start(self)?;
        let pid = running.emulator.id();
        let mut gdb = Gdb::start_as("gdb-multiarch")?;
        gdb.connect(pid, &running.socket(), &self.program, LIBRARIES)?;
        let (mut tables, mut framehop) = (Tables::default(), Framehop::reading(HashMap::new()));
        let files = Files::new(HashMap::new());
        let mut comparison = Comparison::default();
        gdb.run_on(START)?;
        let (mut made, mut waits) = (0, 0);
        while made < stops {
            ensure!(waits < WAITS_MAX, "after {made} stops of {stops}, the program is never found computing");
            gdb.run_on(Duration::from_micros(random.random_range(0..50_000)))?;
            if !gdb.step(random.random_range(1..=64), Some(random.random()))? {
                waits += 1;
                continue;
            }
            waits = 0;
            let look = gdb.look()?;
            let link = look.link.context("no link register")?;
            let space = Space::of_emulated(pid)?;
            let ours = tables.walk(&look, link, &space);
            let by_framehop = theirs(&framehop.frames_of_arm64(&look, link, &space), &look, &space);
            let by_gdb = theirs_of_gdb(&look, &space);
            let difference =
                compare(&ours, &by_gdb, &by_framehop, |place| match files.is_in(place, &LANDING) {
                    true => Ground::Overwritten,
                    false => files.ground(place),
                });
            comparison.add(&ours, difference);
            made += 1;
            told();
        }
        Ok(comparison)
    }
}

/// QEMU with a program, which waits for gdb.
struct Running {
    emulator: Child,
    folder: TempDir,
}

impl Running {
    fn start(program: &Emulated) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let emulator = Command::new("qemu-aarch64-static")
            .env("QEMU_CPU", CPU)
            // QEMU lets a breakpoint of gdb kill a program whose threads compete: Go gets by with few.
            .envs([("GOMAXPROCS", "1"), ("GODEBUG", "asyncpreemptoff=1"), ("GOGC", "off")])
            .arg("-g")
            .arg(folder.path().join("socket"))
            .args(["-L", LIBRARIES])
            .arg(&program.program)
            .arg(SECONDS)
            .args(program.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run qemu-aarch64-static")?;
        let running = Self { emulator, folder };
        let deadline = Instant::now() + START_TIMEOUT;
        while !running.socket().exists() {
            ensure!(Instant::now() < deadline, "QEMU does not listen for gdb");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}

impl Memory for Space {
    fn word(&self, address: u64) -> Option<u64> {
        Self::word(self, address)
    }
}

/// The rows of the files that were met.
#[derive(Default)]
struct Tables {
    files: HashMap<Arc<str>, Option<Table>>,
}

struct Table {
    rows: UnwindTable,
    /// File offsets and stated addresses of its code.
    code: Vec<(Range<u64>, u64)>,
}

impl Table {
    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let rows = sidewinder_unwind::unwind_table(&file).ok()?;
        Some(Self { rows, code: code_segments(&file).collect() })
    }

    fn rule(&self, offset: u64) -> Option<Rule> {
        let (segment, svma) = self.code.iter().find(|(segment, _)| segment.contains(&offset))?;
        let svma = svma + (offset - segment.start);
        match self.rows.lookup(Svma(svma)) {
            Entry::Rule(rule) => Some(rule),
            Entry::End(_) => None,
        }
    }
}

impl Tables {
    fn rule(&mut self, place: &Place, address: u64, space: &Space) -> Option<Rule> {
        match place {
            Place::File(path, offset) => {
                let table =
                    self.files.entry(Arc::clone(path)).or_insert_with(|| Table::read(Path::new(&**path)));
                table.as_ref()?.rule(*offset)
            }
            Place::Memory(_) => {
                space.is_sigreturn(address).then(|| Architecture::Aarch64.kernel_signal_frame())
            }
        }
    }

    fn walk(&mut self, look: &Look, link: u64, space: &Space) -> Ours {
        let mut frame = FrameRegisters {
            pc: Avma(look.pc),
            sp: look.sp,
            sp_is_bound: false,
            fp: look.fp,
            callee_saved: Some(link),
            general: None,
        };
        let mut places = Vec::new();
        let mut is_return_address = false;
        let cut = loop {
            let is_in_call = is_return_address && !space.is_sigreturn(frame.pc.0);
            let address = frame.pc.0.wrapping_sub(u64::from(is_in_call));
            if !space.is_code(address) {
                // What begins the first stack of a process leaves no caller.
                break (frame.pc.0 != 0 || !is_return_address).then_some("no_mapping");
            }
            let place = space.place(address);
            let rule = self.rule(&place, address, space);
            places.push(place);
            let Some(rule) = rule else { break Some("no_rule") };
            match rule.step(&frame, space) {
                Ok(caller) => frame = caller,
                Err(StepError::Outermost) => break None,
                Err(StepError::RegisterLost(_)) => break Some("register_lost"),
                Err(StepError::Unreadable(_)) => break Some("bad_address"),
            }
            is_return_address = !rule.signal_frame;
            if places.len() == FRAMES_MAX {
                break Some("frame_limit");
            }
        };
        Ours { places, cut: cut.map(str::to_owned) }
    }
}
