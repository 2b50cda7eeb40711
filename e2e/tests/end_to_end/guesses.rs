//! Where nothing describes code, a caller may be guessed by a frame pointer. No guess looks like what is known: wrong callers
//! that are not marked as guesses are none.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_judge::elf::Elf;
use sidewinder_e2e_support::never::never;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::{Received, in_user_mode};
use sidewinder_e2e_support::session::{self, Session};
use sidewinder_e2e_support::workload::{self, Program};
use sidewinder_e2e_support::{paths, requirement};
use sidewinder_otlp::decode::DecodedFrame;

const SAMPLES_PER_SECOND: u32 = 997;
const SECONDS: &str = "2";
/// Of each program, at the innermost function of its chain.
const EVENTS_MIN: usize = 20;

/// What was found of the callers of functions whose callers are known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Verdict {
    events: usize,
    /// Stacks with the whole chain.
    whole: usize,
    /// Stacks that end before it does, and say so.
    cut: usize,
    /// Stacks with a wrong caller that is marked as a guess.
    wrong_guess: usize,
    /// Stacks with a wrong caller that isn't.
    wrong: usize,
    /// Callers that are right, and marked as guesses.
    right_guesses: usize,
    examples: Vec<String>,
}

/// A program, and what tells the names of its functions.
struct Subject {
    path: PathBuf,
    names: Elf,
}

impl Subject {
    /// A program as it was compiled.
    fn compiled(program: Program) -> Result<Self> {
        let path = program.compiled()?;
        Ok(Self { names: Elf::read(&path)?, path })
    }

    /// The same without unwind information and, where that is asked for, without symbols.
    fn blind(program: Program, has_symbols: bool) -> Result<Self> {
        let Self { path: from, names } = Self::compiled(program)?;
        let suffix = if has_symbols { "blind" } else { "blind-stripped" };
        let path = paths::compiled()?.join(format!("{}-{suffix}", program.name));
        let mut objcopy = Command::new("objcopy");
        objcopy
            .args(["-R", ".eh_frame", "-R", ".eh_frame_hdr"])
            .args((!has_symbols).then_some("--strip-all"));
        let done = objcopy.arg(from).arg(&path).output().context("cannot run objcopy")?;
        ensure!(done.status.success(), "objcopy: {}", String::from_utf8_lossy(&done.stderr));
        Ok(Self { path, names })
    }

    fn names_of(&self, frame: &DecodedFrame) -> &[String] {
        let file = frame.mapping.as_ref().map(|mapping| Path::new(&*mapping.filename));
        if file == Some(&*self.path) { self.names.names_at(frame.address) } else { &[] }
    }

    fn judge(&self, received: &Received, pid: u32, chain: &[String]) -> Verdict {
        let mut verdict = Verdict::default();
        for event in received.events_of(pid).filter(in_user_mode) {
            let stack = &event.sample.stack;
            let is_at = |frame: Option<&DecodedFrame>, name: &String| {
                frame.is_some_and(|frame| self.names_of(frame).contains(name))
            };
            let frame = |at: usize| stack.get(at).map(|frame| &**frame);
            if !chain.last().is_some_and(|leaf| is_at(frame(0), leaf)) {
                continue;
            }
            verdict.events += 1;
            let right =
                chain.iter().rev().enumerate().take_while(|(at, name)| is_at(frame(*at), name)).count();
            let guesses = stack.iter().take(right).filter(|frame| frame.is_guessed());
            verdict.right_guesses += guesses.count();
            let count = match frame(right) {
                _ if right == chain.len() => &mut verdict.whole,
                Some(caller) if caller.is_marker() == Some(true) => &mut verdict.cut,
                Some(caller) if caller.is_guessed() => &mut verdict.wrong_guess,
                _ => {
                    if verdict.examples.len() < 3 {
                        let names = stack.iter().map(|frame| format!("{:?}", self.names_of(frame)));
                        verdict.examples.push(names.collect::<Vec<_>>().join(" < "));
                    }
                    &mut verdict.wrong
                }
            };
            *count += 1;
        }
        verdict
    }

    fn profiled(&self, arguments: &[&str]) -> Result<Session> {
        let mut command = Command::new(&self.path);
        command.arg(SECONDS).args(arguments);
        session::profile(command, SAMPLES_PER_SECOND)
    }

    /// Judges the events at the end of a chain, outermost first: none has a wrong caller that isn't marked.
    fn verdict(&self, session: &Session, chain: &[String]) -> Verdict {
        let verdict = self.judge(&session.received, session.report.pid, chain);
        eprintln!("{}: {verdict:?}", self.path.display());
        never(verdict.wrong > 0, "a wrong caller", format_args!("{}: {verdict:#?}", self.path.display()));
        assert!(verdict.events >= EVENTS_MIN, "{}: {verdict:?}", self.path.display());
        verdict
    }
}

#[promise(WithoutUnwindInformation, test_all)]
fn without_unwind_information_callers_are_found_in_the_code_and_hardly_ever_guessed() -> Result<()> {
    const TEST: &str = "callers without unwind information";
    if !requirement::ebpf(TEST)? || !requirement::program(TEST, "objcopy")? {
        return Ok(());
    }
    let mut programs =
        vec![workload::LADDER, workload::LADDER_FP, workload::LADDER_RUST, workload::REC, workload::REC_FP];
    if requirement::program(TEST, "fpc")? {
        programs.push(workload::LADDER_PASCAL);
    }
    for program in programs {
        for has_symbols in [true, false] {
            let subject = Subject::blind(program, has_symbols)?;
            let session = subject.profiled(&["10"])?;
            let verdict = subject.verdict(&session, &session.report.chain);
            assert!(verdict.whole * 100 >= verdict.events * 99, "{}: {verdict:?}", program.name);
            assert!(verdict.right_guesses * 100 <= verdict.events, "{}: {verdict:?}", program.name);
        }
    }
    Ok(())
}

#[promise(WithoutUnwindInformation)]
fn a_guess_is_marked_and_one_that_calls_contradict_is_set_right() -> Result<()> {
    if !requirement::ebpf("guesses")? {
        return Ok(());
    }
    let subject = Subject::compiled(workload::GUESSES)?;
    let session = subject.profiled(&[])?;
    let verdict = |chain: [&str; 3]| subject.verdict(&session, &chain.map(str::to_owned));
    // At its first instruction, its frame is known.
    let skips = verdict(["main", "below", "skips"]);
    assert_eq!(skips.wrong_guess + skips.whole, skips.events, "{skips:?}");
    assert!(skips.whole * 100 <= skips.events, "{skips:?}");
    let misses = verdict(["main", "above", "misses"]);
    assert_eq!(misses.right_guesses, misses.events, "{misses:?}");
    let keeps = verdict(["main", "around", "keeps"]);
    assert!(keeps.whole * 100 >= keeps.events * 95, "{keeps:?}");
    Ok(())
}
