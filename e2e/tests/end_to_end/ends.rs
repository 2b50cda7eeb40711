//! Stacks that begin elsewhere than in a C library's `_start` and threads are whole, too: entry points of any form, fibres,
//! programs that are just being bound, and what compilers at run time generate.

use std::process::Command;

use anyhow::Result;
use sidewinder_e2e_judge::Judge;
use sidewinder_e2e_support::paths;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Settings, launch};
use sidewinder_e2e_support::workload::{self, Program};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

const SECONDS: u32 = 2;
const SAMPLES_PER_SECOND: u32 = 499;
/// Of some 1,000; fewer on a busy machine.
const EVENTS_MIN: usize = 30;

fn is_of_user(frame: &DecodedFrame) -> bool {
    frame.frame_type() != Some(FrameType::Kernel) && frame.is_marker() != Some(true)
}

/// Events that have user frames, and among them those whose stack ended so; `None`: is whole.
fn count(received: &Received, outcome: Option<&str>) -> (usize, usize) {
    let of_user: Vec<DecodedEvent<'_>> =
        received.events().filter(|event| event.sample.stack.iter().any(|frame| is_of_user(frame))).collect();
    let ended_so = of_user.iter().filter(|event| event.sample.outcome() == outcome).count();
    (of_user.len(), ended_so)
}

/// Of the events of a command, `percent` of a hundred and more are whole.
fn assert_whole(name: &str, command: &Command, percent: usize) -> Result<()> {
    let received = launch(Settings::at(SAMPLES_PER_SECOND), command, None)?.received;
    let (all, whole) = count(&received, None);
    eprintln!("{name}: {whole} of {all} stacks are whole");
    assert!(all >= EVENTS_MIN, "{name}: {all} events");
    assert!(whole * 100 >= all * percent, "{name}: {whole} of {all} stacks are whole");
    Ok(())
}

fn own_program<A: ToString>(program: Program, arguments: &[A], percent: usize) -> Result<()> {
    if !requirement::ebpf(program.name)? {
        return Ok(());
    }
    assert_whole(program.name, &program.command(arguments)?, percent)
}

#[promise(CompleteOrTruncated)]
fn an_entry_point_without_information_ends_a_stack_however_long_it_is() -> Result<()> {
    own_program::<&str>(workload::ENTRY, &[], 99)
}

/// All that the library has is code: neither unwind information nor the names of the functions in which threads begin.
#[promise(CompleteOrTruncated, test_all)]
fn threads_of_a_musl_without_unwind_information_are_whole() -> Result<()> {
    if !requirement::program("musl's threads", "musl-gcc")? {
        return Ok(());
    }
    own_program(workload::REC_MUSL, &[SECONDS, 20], 99)?;
    own_program(workload::THREADS_MUSL, &[SECONDS, 2], 99)
}

#[promise(CompleteOrTruncated, test_all)]
fn a_fibre_whose_first_frame_returns_to_0_is_whole() -> Result<()> {
    own_program(workload::FIBRE, &[SECONDS], 99)
}

/// A 0 beside the place where a call leaves a return address is none: the stack is cut, and says so.
#[promise(CompleteOrTruncated)]
fn a_0_where_no_call_leaves_a_return_address_is_not_taken_for_the_end() -> Result<()> {
    if !requirement::ebpf("a 0 beside a return address")? {
        return Ok(());
    }
    let command = workload::FIBRE.command(&[&SECONDS.to_string(), "beside"])?;
    let received = launch(Settings::at(SAMPLES_PER_SECOND), &command, None)?.received;
    let ((all, cut), (_, whole)) = (count(&received, Some("no_mapping")), count(&received, None));
    assert!(all >= EVENTS_MIN && cut * 100 >= all * 95, "{cut} of {all} are cut");
    // Those of the program's start.
    assert!(whole * 100 <= all * 5, "{whole} of {all} are taken for whole");
    Ok(())
}

#[promise(CompleteOrTruncated, test_all)]
fn fibres_of_boost_context_are_whole() -> Result<()> {
    own_program(workload::FIBRES, &[SECONDS], 99)
}

/// Programs that call many functions of libraries at their start, each for the first time.
const PROGRAMS: [&str; 24] = [
    "ar", "as", "awk", "bash", "cat", "clang", "cp", "find", "gcc", "gdb", "grep", "gzip", "ld", "ls",
    "make", "objdump", "openssl", "perl", "python3", "readelf", "sed", "sqlite3", "tar", "xz",
];

/// 20 starts of each program: while a symbol is bound, the dynamic linker's trampoline finds its frame by a register
/// that the functions which it calls have saved.
#[promise(CompleteOrTruncated, test_all)]
fn no_stack_of_a_program_that_is_being_bound_is_cut_for_want_of_a_register() -> Result<()> {
    if !requirement::ebpf("programs that are being bound")? {
        return Ok(());
    }
    let script = format!(
        "unset LD_BIND_NOW; for i in $(seq 20); do for p in {}; do \"$p\" --version; done; done >/dev/null 2>&1; true",
        PROGRAMS.join(" ")
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]);
    let received = launch(Settings::at(4999), &command, None)?.received;
    let (all, _) = count(&received, None);
    let passes = |event: &DecodedEvent<'_>, name: &str| {
        event
            .sample
            .stack
            .iter()
            .any(|frame| frame.function().is_some_and(|function| function.starts_with(name)))
    };
    let binding = received.events().filter(|event| passes(event, "_dl_fixup")).count();
    // A vfork that a signal interrupts has its return address in a register, which only the signal's frame holds.
    let is_lost =
        |event: &DecodedEvent<'_>| event.sample.outcome() == Some("register_lost") && !passes(event, "vfork");
    let mut judge = Judge::default();
    let lost: Vec<_> = received.events().filter(is_lost).map(|event| judge.describe(&event)).collect();
    eprintln!("{binding} of {all} stacks bind a symbol; {} lost a register", lost.len());
    assert!(all >= 500 && binding >= 10, "{binding} of {all} stacks bind a symbol");
    assert!(lost.is_empty(), "of {all} stacks, {binding} of which bind a symbol: {lost:#?}");
    Ok(())
}

/// LuaJIT's code keeps no frame pointers, and all of it is one frame of the C stack.
#[promise(CompleteOrTruncated, test_all)]
fn stacks_through_code_of_luajit_reach_the_start() -> Result<()> {
    if !requirement::ebpf("LuaJIT")? || !requirement::program("LuaJIT", "luajit")? {
        return Ok(());
    }
    let mut command = Command::new("luajit");
    command.arg(paths::e2e().join("workloads/loops.lua")).arg(SECONDS.to_string());
    assert_whole("luajit", &command, 95)
}

/// PyPy's code has a frame on the C stack in which earlier calls have left return addresses.
#[promise(CompleteOrTruncated, test_all)]
fn stacks_through_code_of_pypy_reach_the_start() -> Result<()> {
    if !requirement::ebpf("PyPy")? || !requirement::program("PyPy", "pypy3")? {
        return Ok(());
    }
    let mut command = Command::new("pypy3");
    command.arg(paths::e2e().join("workloads/allocating.py")).arg("4");
    assert_whole("pypy3", &command, 88)
}

/// Programs that only tests load are in no release.
#[promise(Small)]
fn the_profiler_holds_no_programs_of_tests() -> Result<()> {
    let binary = std::fs::read(paths::sidewinder()?)?;
    // Names of symbols end with a zero byte, and one may be the end of another.
    let texts: Vec<&[u8]> = binary.split(|byte| *byte == 0).collect();
    let holds = |name: &str| texts.iter().any(|text| text.ends_with(name.as_bytes()));
    assert!(holds("sample_cpu_by_calls"), "the names of programs can be found");
    for name in ["sample_probe", "walk_probe_by_calls", "walk_given"] {
        assert!(!holds(name), "{name} is for tests alone");
    }
    Ok(())
}
