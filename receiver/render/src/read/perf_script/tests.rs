use proptest::prelude::*;
use sidewinder_kind::Counter;
use sidewinder_profile::FrameType;

use super::*;
use crate::DisplayNames;
use crate::expansion::ExpansionBudget;

fn read(title: &str, text: &str, sample_type: Option<&str>) -> Result<Profile, ReadError> {
    super::read(PerfProfile::new(title, sample_type, ExpansionBudget::for_document(0, 0)), text)
}

/// What perf 6.1 prints for two events, with the frames that all of its forms have.
const SCRIPT: &str = "\
# ========
# captured on    : Thu Nov 26 12:25:38 2026
# ========
server 31802/31802 [001] 56105.282481:          1 page-faults:u: 
\tffffffff8175336a elf_load+0x28a ([kernel.kallsyms])
\t    7f76c24f2ad7 [unknown] ([unknown])

IO worker 1 31802/31803 56105.284558:    2000000   cpu-clock:ppp: 
\t            113f push(std::pair<int, char> const&)+0x16 (inlined)
  push.h:7
\t            113f work(int (*)(int))+0x16 (/srv/the server (v2))
  server.cc:12
\t           2724a __libc_start_call_main+0x7a (/usr/lib/x86_64-linux-gnu/libc.so.6)

server 31802/31802 56105.286558:    2000000   cpu-clock:ppp: 
\t            1200 [unknown] (/srv/the server (v2) (deleted))
\t    7f76c24f2ad7 py::main:/srv/app.py+0x10 (/tmp/perf-31802.map)
\t    7f76c24f2ad8 Lua::run+0x10 (/tmp/perf-31802.map)

server 31802/31802 56105.288558:    2000000   cpu-clock:ppp:              1200 add (/srv/the server (v2))
server 31802/31802 56105.298558: PERF_RECORD_LOST lost 5
";

fn read_script(text: &str, sample_type: Option<&str>) -> Profile {
    assert!(is_script(text), "{text}");
    read("it", text, sample_type).unwrap()
}

fn folded(profile: &Profile) -> Vec<String> {
    crate::folded::lines(profile, &DisplayNames::default()).collect()
}

#[test]
fn each_event_is_a_profile_with_its_stacks_threads_and_times() {
    let profile = read_script(SCRIPT, Some("cpu-clock:ppp"));
    let mut lines = folded(&profile);
    lines.sort();
    assert_eq!(
        lines,
        [
            "server;Lua::run;main;the server (v2)+0x1200 1",
            "server;__libc_start_call_main;work(int (*)(int));push(std::pair<int, char> const&) 1",
            "server;add 1",
        ]
    );
    assert_eq!(
        (profile.measure.name(), profile.measure.rate_hz(), profile.measure.period_ns()),
        ("cpu", 500, 2_000_000)
    );
    assert_eq!(profile.duration.as_millis(), 4);
    let slices: Vec<_> = profile.samples.iter().map(|sample| sample.slice).collect();
    assert_eq!(slices.iter().max(), Some(&4));
    let threads: Vec<_> = profile
        .threads
        .iter()
        .map(|thread| (&*thread.process, thread.pid, &*thread.name, thread.tid))
        .collect();
    assert_eq!(threads, [("server", 31802, "IO worker 1", 31803), ("server", 31802, "server", 31802)]);
    let frame = |name: &str| {
        let mut frames = profile.stacked_frames().map(|(_, frame)| frame);
        frames.find(|frame| frame.name().starts_with(name)).unwrap()
    };
    let (push, work, main) = (frame("push"), frame("work"), frame("main"));
    assert_eq!((push.path(), push.line.line, push.binary_path()), ("push.h", 7, "/srv/the server (v2)"));
    assert!(push.is_inlined && !work.is_inlined);
    assert_eq!((work.path(), work.line.line, work.location.address), ("server.cc", 12, 0x113f));
    assert_eq!((main.location.frame_type, main.path()), (FrameType::CPython, "/srv/app.py"));
    assert!(frame("Lua").location.is_generated);
    assert!(!frame("the server").is_named());
}

#[test]
fn the_first_event_is_the_default_and_another_one_is_refused_with_those_that_there_are() {
    let faults = read_script(SCRIPT, None);
    assert_eq!(faults.measure.name(), Counter::PageFaults.descriptor().value_type.name);
    let frames: Vec<_> = faults.stacked_frames().map(|(_, frame)| frame).collect();
    let [load, unknown] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((faults.total_count(), load.location.frame_type), (1, FrameType::Kernel));
    assert_eq!(load.binary_path(), "[kernel]", "as in our own profiles");
    assert_eq!((&*unknown.name(), unknown.is_named()), ("[unknown]", false));
    let error = read("it", SCRIPT, Some("cycles")).unwrap_err().to_string();
    assert!(error.ends_with("it holds page-faults:u, cpu-clock:ppp"), "{error}");
}

#[test]
fn periods_that_differ_are_summed_and_missing_ones_count_samples() {
    let sum = read_script(
        "a b 1 1.5: 10 cycles:P: \n\t1 f+0x0 (/a)\n\na b 1 1.6: 15 cycles:P: \n\t1 f+0x0 (/a)\n",
        None,
    );
    assert_eq!((sum.total_count(), sum.measure.name(), sum.measure.period.clone()), (25, "cycles", None));
    assert_eq!((&*sum.threads[0].name, sum.threads[0].pid, sum.threads[0].tid), ("a b", 0, 1));
    let counted = read_script("a 1 \n\tffffffff8175336a f\n\na 1\n\tffffffff8175336a f\n", None);
    assert_eq!((counted.total_count(), counted.measure.name()), (2, "samples"));
    assert_eq!(counted.duration, std::time::Duration::ZERO);
    let tracepoint = "swapper     0 [000] 7.000001: sched:sched_switch: prev_comm=x (1, 2)\n";
    assert_eq!(folded(&read_script(tracepoint, None)), ["swapper 1"]);
    let aligned =
        "               w  1089 56253.435598:    2000000 cpu-clock:      55965650713c leaf+0x13 (/tmp/w)\n";
    assert_eq!(folded(&read_script(aligned, None)), ["w;leaf 1"]);
}

#[test]
fn other_texts_are_not_taken_for_perfs() {
    for text in [
        "",
        "main;work 3\n",
        "a 1 2\n",
        "a b 12 1\n",
        "# only\n",
        "{\"a\": 1}\n",
        "word 12\nno frame\n",
        "1 2 3: 4\n",
    ] {
        assert!(!is_script(text), "{text:?}");
    }
    assert_eq!(
        read("it", "w 1 1.5: 1 e:\n\nwhat\n", None).unwrap_err().to_string(),
        "line 3 is neither a sample nor a frame of perf script"
    );
}

#[test]
fn a_stack_or_a_line_without_end_is_cut_or_refused() {
    let frames = "\t            1000 f+0x0 (/a)\n".repeat(FRAMES_MAX + 1);
    let deep = read_script(&format!("a 1 1.5: 1 e:\n{frames}"), None);
    let stack = deep.dictionary.stack(deep.samples[0].stack);
    assert_eq!(stack.len(), FRAMES_MAX + 1);
    let outermost = deep.dictionary.location(stack[FRAMES_MAX]);
    assert_eq!(outermost.marker, Some(&Marker::truncated(TOO_DEEP)));
    let long = format!("a 1 1.5: 1 e:\n\n{} 1 1.5: 1 e:\n", "x ".repeat(SAMPLE_BYTES_MAX));
    assert!(matches!(read("it", &long, None), Err(ReadError::NoSample { line: 3 })));
}

proptest! {
    /// Any lines made of the pieces of perf's: no panic, and each sample of the selected event is counted.
    #[test]
    fn pieces_of_perfs_lines_in_any_order_are_read_or_refused(
        lines in proptest::collection::vec(proptest::sample::select(vec![
            "w 1 1.5: 2 e:", "w 1/2 [003] 99999999999.123456789: e:", "\u{a0}w 18446744073709551616 1.5:", "w -1 0.5: 18446744073709551615 e:",
            "\t            113f f+0x16 (inlined)", "\tadd", "\t(", "\t+0x (", "  x:9", "  :", "\té+0xé (é)", " ()", "", "#", "w 1 e:", "\t  [unknown] ([unknown])",
        ]), 0..20),
        bytes in any::<Vec<u8>>(),
    ) {
        let text = lines.join("\n");
        if let Ok(profile) = read("it", &text, Some("e")) {
            prop_assert!(profile.samples.len() <= lines.len());
            let _ = folded(&profile);
        }
        let mixed = format!("w 1 1.5: 2 e:\n\t{}", String::from_utf8_lossy(&bytes));
        let _ = read("it", &mixed, None);
        let _ = is_script(&mixed);
    }
}
