//! A virtual machine of our own (`workloads/toy_vm.c`), which the profiler takes for a CPython whose structures it has never
//! seen: its frames stand where they were called, at any depth. Where the machine's memory is in a state that no walk can
//! follow, or its description of itself is wrong, stacks say that frames are missing, and never name a wrong function.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sidewinder_e2e_judge::python::{Frame, FrameKind, Stack, from_otlp};
use sidewinder_e2e_support::collector;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Daemon, Session, Settings};
use sidewinder_e2e_support::workload::{Gated, TOY_VM, TOY_VM_OF_TAIL_CALLS};
use sidewinder_e2e_support::{paths, requirement};

use super::{is_long, session};
use crate::telemetry::{page, telemetry, until};

const ACTIVATIONS: usize = 5;
/// Of a program's samples, those taken in `burn`, where its state is what its stack says.
const BURN_SHARE: f64 = 0.9;
const STATE_PREFIX: &str = "in_state_";
const UNKNOWN: &str = "[unknown Python function]";

/// A stack of the toy while it burns, outermost frame first.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Burning {
    /// The state that its frames were in; `None` if no function says so.
    state: Option<String>,
    /// What is below that function: names of native functions, and of the machine's with their lines.
    frames: Vec<String>,
    /// Of these, the names that stand for missing frames.
    markers: Vec<String>,
    is_truncated: bool,
}

impl Burning {
    /// `None` if it was interrupted elsewhere.
    fn of(stack: &Stack) -> Option<Self> {
        let user: Vec<&Frame> = stack.frames.iter().filter(|frame| frame.kind != FrameKind::Kernel).collect();
        user.last().filter(|leaf| leaf.name == "burn")?;
        let at = user.iter().position(|frame| frame.name.starts_with(STATE_PREFIX));
        let shown = |frame: &&Frame| match frame.kind {
            FrameKind::Python => format!("{}:{}", frame.name, frame.line),
            _ => frame.name.clone(),
        };
        let below = &user[at.map_or(0, |at| at + 1)..];
        let markers = below.iter().filter(|frame| frame.kind == FrameKind::Marker);
        Some(Self {
            state: at.map(|at| user[at].name[STATE_PREFIX.len()..].to_owned()),
            frames: below.iter().map(shown).collect(),
            markers: markers.map(|frame| frame.name.clone()).collect(),
            is_truncated: stack.is_truncated,
        })
    }
}

/// What there is in the profile of a toy.
struct Profiled {
    /// With the number of samples.
    burning: BTreeMap<Burning, u64>,
    /// Below the function of the state.
    chain: Vec<String>,
}

fn profile(program: Command) -> Result<Profiled> {
    let Session { received, report, .. } = session(program, &[])?;
    let stacks = from_otlp(&received);
    let mut burning = BTreeMap::new();
    for stack in &stacks {
        if let Some(found) = Burning::of(stack) {
            *burning.entry(found).or_default() += stack.count;
        }
    }
    let (all, burned) = (stacks.iter().map(|stack| stack.count).sum::<u64>(), burning.values().sum::<u64>());
    ensure!(burned as f64 >= BURN_SHARE * all as f64, "{burned} of {all} samples are in `burn`");
    Ok(Profiled { burning, chain: report.chain })
}

fn is_machines(name: &str) -> bool {
    name.starts_with("Toy.")
}

fn missing(reason: &str) -> String {
    format!("[Python frames missing: {reason}]")
}

/// The chain with one marker in the place of each activation's frames.
fn without_groups(chain: &[String], reason: &str) -> Vec<String> {
    let mut frames = Vec::<String>::new();
    for name in chain {
        match is_machines(name) {
            true if frames.last() == Some(&missing(reason)) => {}
            true => frames.push(missing(reason)),
            false => frames.push(name.clone()),
        }
    }
    frames
}

/// The innermost frame of the machine.
fn innermost(chain: &[String]) -> Result<&String> {
    chain.iter().rfind(|name| is_machines(name)).context("a chain without frames of the machine")
}

/// The chain with other frames in the place of the innermost one of the machine.
fn with_innermost(mut chain: Vec<String>, by: &[&str]) -> Result<Vec<String>> {
    let at = chain.iter().rposition(|name| is_machines(name)).context("no frame")?;
    chain.splice(at..=at, by.iter().map(|name| (*name).to_owned()));
    Ok(chain)
}

/// The chain with other frames in the place of those of the innermost activation.
fn with_innermost_group(chain: &[String], by: &[&str]) -> Result<Vec<String>> {
    let last = chain.iter().rposition(|name| is_machines(name)).context("no frame")?;
    let before = chain[..last].iter().rposition(|name| !is_machines(name)).map_or(0, |at| at + 1);
    let mut chain = chain.to_vec();
    chain.splice(before..=last, by.iter().map(|name| (*name).to_owned()));
    Ok(chain)
}

/// What the toy's stacks have to be in a state of its frames; see there. What is torn are the innermost activation's frames: it
/// alone lacks some.
fn expected(state: &str, chain: &[String]) -> Result<Vec<String>> {
    let unreadable = missing("unreadable");
    match state {
        "whole" | "detached" => Ok(chain.to_vec()),
        "no_state" | "other_thread" => Ok(without_groups(chain, state)),
        "null" => with_innermost_group(chain, &[&missing("no_frames")]),
        // In the last two, the frame seems to be the one that ends a group, but isn't in the loop's native frame.
        "unmapped" | "locked" | "not_canonical" | "odd_shim" | "odd_owner" => {
            with_innermost_group(chain, &[&unreadable])
        }
        // The frame itself is there. Its function is not, nor its caller.
        "odd_frame" => with_innermost_group(chain, &[&unreadable, &unreadable]),
        "unlinked" => with_innermost_group(chain, &[&missing("no_frames"), innermost(chain)?]),
        "endless" => with_innermost_group(chain, &[&unreadable, innermost(chain)?]),
        // Two frames that call each other are taken for three before that is noticed.
        "cycle" => {
            let innermost = innermost(chain)?;
            let caller =
                chain.iter().rfind(|name| is_machines(name) && *name != innermost).context("one frame")?;
            with_innermost_group(chain, &[&unreadable, innermost, caller, innermost])
        }
        // The loop itself calls `burn`.
        "entering" | "empty" | "leaving" => {
            let mut chain = with_innermost_group(chain, &[&missing("no_frames")])?;
            chain.remove(chain.len() - 2);
            Ok(chain)
        }
        "no_code" | "unmapped_code" => with_innermost(chain.to_vec(), &[&unreadable]),
        "odd_code" | "freed_code" => with_innermost(chain.to_vec(), &[UNKNOWN]),
        other => bail!("a state that this test doesn't know: {other}"),
    }
}

const STATES: usize = 21;

fn toy(seconds: &str, activations: usize, state: &str) -> Result<Command> {
    TOY_VM.command(&[seconds, &activations.to_string(), state])
}

#[promise(CPython, test_all)]
fn frames_that_no_walk_can_follow_are_said_to_be_missing() -> Result<()> {
    if !requirement::ebpf("a virtual machine with torn frames")? {
        return Ok(());
    }
    let Profiled { burning, chain } = profile(toy("3", ACTIVATIONS, "all")?)?;
    let mut samples = BTreeMap::<&str, u64>::new();
    for (Burning { state, frames, is_truncated, .. }, count) in &burning {
        let state = state.as_ref().with_context(|| format!("{count} times without a state: {frames:?}"))?;
        assert_eq!(*frames, expected(state, &chain)?, "{state}, {count} times");
        assert!(!is_truncated, "{state}: {frames:?}");
        *samples.entry(state).or_default() += count;
    }
    eprintln!("{samples:?}");
    assert_eq!(samples.len(), STATES, "{samples:?}");
    assert!(samples.values().all(|count| *count >= 5), "{samples:?}");
    Ok(())
}

/// From the machine to native code and back 2,000 times: 2,500 frames of the machine, 4,000 native ones.
#[promise(CPython)]
fn two_thousand_activations_are_in_order() -> Result<()> {
    const DEEP: usize = 2_000;
    if !requirement::ebpf("a virtual machine 2,000 activations deep")? {
        return Ok(());
    }
    let Profiled { burning, chain } = profile(toy("3", DEEP, "whole")?)?;
    assert_eq!(chain.len(), DEEP + DEEP / 4 + DEEP + 1);
    assert_all_whole(&burning, chain);
    Ok(())
}

fn assert_all_whole(burning: &BTreeMap<Burning, u64>, chain: Vec<String>) {
    let all: u64 = burning.values().sum();
    let state = Some("whole".to_owned());
    let whole = Burning { state, frames: chain, markers: Vec::new(), is_truncated: false };
    let equal = burning.get(&whole).copied().unwrap_or_default();
    eprintln!("{equal} of {all} samples have all frames in order");
    let others = burning.keys().find(|stack| **stack != whole);
    assert!(
        all >= 60 && equal == all,
        "{equal} of {all} samples have all frames in order, but not {others:?}"
    );
}

/// The function that executes an instruction is called by the loop's, and is no activation of its own.
#[promise(CPython, test_all)]
fn a_loop_of_tail_calls_has_one_group_for_each_activation() -> Result<()> {
    if !requirement::ebpf("a virtual machine whose loop consists of tail calls")? {
        return Ok(());
    }
    let activations = ACTIVATIONS.to_string();
    let program = TOY_VM_OF_TAIL_CALLS.command(&["3", &activations, "whole"])?;
    let Profiled { burning, chain } = profile(program)?;
    assert_eq!(chain.iter().filter(|name| *name == "_TAIL_CALL_CALL_NATIVE").count(), ACTIVATIONS);
    assert_all_whole(&burning, chain);
    Ok(())
}

/// The values of a counter, by `state`.
fn states_of(metrics: &str, name: &str) -> BTreeMap<String, u64> {
    let points = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let point = |line: &str| {
        let state = line.split_once("state=\"")?.1.split('"').next()?;
        Some((state.to_owned(), line.rsplit(' ').next()?.parse::<f64>().ok()? as u64))
    };
    points.filter_map(point).collect()
}

/// Looks at the counters, ten per second, that find nothing new before they are believed.
const STILL_LOOKS: u32 = 25;

/// What the profiler counts while a toy runs in one state. Its events have nowhere to go.
fn counted(state: &str) -> Result<BTreeMap<String, u64>> {
    let [metrics_port, nobodys_port] = collector::free_ports()?;
    let mut toy = Gated::start(toy("0.5", ACTIVATIONS, state)?)?;
    let settings = Settings { service: vec![telemetry(metrics_port)], ..Settings::of_process(toy.pid()) };
    let _daemon = Daemon::start(&settings, &format!("127.0.0.1:{nobodys_port}"))?;
    toy.open()?;
    toy.finish()?;
    // Counters are brought up to date about once per second.
    let (mut before, mut still_looks) = (BTreeMap::new(), 0);
    until("the counters stand still", || {
        let counts = states_of(&page(metrics_port, "/metrics")?, "sidewinder_vm_frames");
        let is_still = counts.values().sum::<u64>() > 0 && counts == before;
        still_looks = if is_still { still_looks + 1 } else { 0 };
        before = counts;
        Ok((still_looks >= STILL_LOOKS).then(|| before.clone()))
    })
}

#[promise(CPython, test_all)]
fn missing_frames_are_counted_by_their_reason() -> Result<()> {
    if !requirement::ebpf("counters of a virtual machine with torn frames")? {
        return Ok(());
    }
    let activations = ACTIVATIONS as u64;
    for (state, reason, each) in [("other_thread", "other_thread", activations), ("no_code", "unreadable", 1)]
    {
        let counts = counted(state)?;
        eprintln!("{state}: {counts:?}");
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        assert!(count(reason) >= 5 * each && count(reason) % each == 0, "{state}: {counts:?}");
        let others = ["no_state", "other_thread", "unreadable", "no_frames"];
        assert!(others.iter().all(|other| *other == reason || count(other) == 0), "{state}: {counts:?}");
    }
    Ok(())
}

/// What becomes of stacks when a field of the machine's description is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// Frames of each stack are missing, or their functions are unknown.
    Markers,
    /// The file contains no such interpreter: stacks have the native frames of its loop.
    Refused,
    /// Names are right; lines or paths are not.
    Names,
    /// Names are right, with the first line of each function, where functions are sent with their stacks; those that are read
    /// from the program's memory are unknown.
    FirstLines,
    /// The description names another string, which is the name without its class.
    PlainNames,
}

/// The index of a word in `_Py_DebugOffsets`, what to add to it, and the effect.
const WRONG: [(&str, usize, i64, Effect); 24] = [
    ("PyThreadState.current_frame", 23, -8, Effect::Markers),
    ("PyThreadState.current_frame", 23, 8, Effect::Markers),
    ("PyThreadState.thread_id", 24, -8, Effect::Markers),
    ("PyThreadState.thread_id", 24, 8, Effect::Markers),
    ("_PyInterpreterFrame.previous", 29, -8, Effect::Markers),
    ("_PyInterpreterFrame.previous", 29, 8, Effect::Markers),
    ("_PyInterpreterFrame.f_executable", 30, -8, Effect::Markers),
    ("_PyInterpreterFrame.f_executable", 30, 8, Effect::Markers),
    ("_PyInterpreterFrame.instr_ptr", 31, -8, Effect::Names),
    ("_PyInterpreterFrame.instr_ptr", 31, 8, Effect::Names),
    ("_PyInterpreterFrame.owner", 33, -8, Effect::Markers),
    ("PyCodeObject.co_filename", 35, -8, Effect::Markers),
    ("PyCodeObject.co_filename", 35, 8, Effect::Names),
    ("PyCodeObject.co_qualname", 37, -8, Effect::PlainNames),
    ("PyCodeObject.co_qualname", 37, 8, Effect::Markers),
    ("PyCodeObject.co_linetable", 38, -8, Effect::FirstLines),
    ("PyCodeObject.co_linetable", 38, 8, Effect::FirstLines),
    ("PyCodeObject.co_firstlineno", 39, -8, Effect::Refused),
    ("PyCodeObject.co_firstlineno", 39, 8, Effect::Names),
    ("PyCodeObject.co_argcount", 40, -8, Effect::Names),
    ("PyCodeObject.co_argcount", 40, 8, Effect::Refused),
    ("PyCodeObject.co_code_adaptive", 43, 8, Effect::Names),
    ("sizeof(PyASCIIObject)", 70, -8, Effect::Markers),
    ("sizeof(PyASCIIObject)", 70, 8, Effect::Markers),
];
/// Of these, the ones that every test run tries: one of each structure.
const IN_SHORT: [usize; 4] = [5, 7, 14, 23];

/// Writes a toy with one word of its description changed.
fn write_wrong(path: &Path, word: usize, by: i64) -> Result<()> {
    let mut file = fs::read(TOY_VM.compiled()?)?;
    let start = file.windows(8).position(|bytes| bytes == b"xdebugpy").context("no description")?;
    let bytes = file[start..][8 * word..].first_chunk_mut::<8>().context("it is cut")?;
    *bytes = (i64::from_le_bytes(*bytes) + by).to_le_bytes();
    fs::write(path, file)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

fn assert_effect(field: &str, effect: Effect, profiled: &Profiled) {
    let Profiled { burning, chain } = profiled;
    let without_line = |name: &str| name.rsplit_once(':').map_or(name, |(name, _)| name).to_owned();
    let known: Vec<String> = chain.iter().map(|name| without_line(name)).collect();
    for Burning { frames, markers, .. } in burning.keys() {
        let has = |wanted: &dyn Fn(&str) -> bool| frames.iter().any(|name| wanted(name));
        let is_loop = |name: &str| name == "_PyEval_EvalFrameDefault";
        let is_plain = |name: &str| known.iter().any(|known| known.strip_prefix("Toy.") == Some(name));
        let names = frames.iter().filter(|name| !markers.contains(name));
        for name in names.map(|name| without_line(name)) {
            let is_right = match effect {
                Effect::PlainNames => is_plain(&name),
                Effect::Refused => is_loop(&name),
                _ => is_machines(&name),
            };
            assert!(known.contains(&name) || is_right, "{field}: {frames:?}");
        }
        let has_marker = !markers.is_empty();
        let has_names = || frames.iter().map(|name| without_line(name)).eq(known.iter().cloned());
        let is_as_expected = match effect {
            Effect::Markers => has_marker,
            Effect::Refused => has(&is_loop),
            Effect::Names => has_names(),
            Effect::FirstLines => has_marker || (has_names() && frames != chain),
            Effect::PlainNames => has(&|name| is_plain(&without_line(name))),
        };
        assert!(is_as_expected, "{field}: not {effect:?}: {frames:?}");
    }
}

#[promise(CPython, test_all)]
fn a_wrong_offset_is_seen_and_names_nothing_wrong() -> Result<()> {
    let name = "a virtual machine with wrong offsets";
    if !requirement::ebpf(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir_in(paths::compiled()?)?;
    for (number, (field, word, by, effect)) in WRONG.into_iter().enumerate() {
        if !is_long() && !IN_SHORT.contains(&number) {
            continue;
        }
        // A file of its own each: what is known of a file is kept.
        let path = folder.path().join(format!("toy_vm-{number}"));
        write_wrong(&path, word, by)?;
        let mut program = Command::new(&path);
        program.args(["0.5", "3", "whole"]);
        let field = format!("{field}{by:+}");
        let profiled = profile(program).with_context(|| field.clone())?;
        assert_effect(&field, effect, &profiled);
        eprintln!("{field}: {effect:?}");
    }
    Ok(())
}
