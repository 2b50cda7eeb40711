use sidewinder_base::foreign::ForeignReader;
use sidewinder_bpf::Opener;
use sidewinder_debug_files::Companions;
use sidewinder_message::test_support::event;
use sidewinder_message::{FileInfo, JitSource};
use sidewinder_naming::NamingOptions;
use sidewinder_process::BuildIds;
use sidewinder_vm::Runtime;

use super::*;

/// Larger than any PID of a process.
const FIRST_PID: u32 = 1 << 30;
const NODE: UnnamedCause = UnnamedCause::GeneratedCode { generator: Some(Runtime::V8), has_names: false };

fn group(program: &str, pids: &[u32], cause: UnnamedCause) -> UnnamedGroup {
    UnnamedGroup {
        program: program.to_owned(),
        pids: pids.to_vec(),
        own_pid: pids[0],
        cause,
        unnamed: 1_234,
        total: 2_000,
    }
}

fn description(name: &str) -> Arc<ProcessDescription> {
    Arc::new(ProcessDescription { comm: Some(name.as_bytes().into()), ..ProcessDescription::default() })
}

#[test]
fn a_line_names_the_program_and_what_would_name_its_frames() {
    assert_eq!(
        lines(&[group("node", &[123], NODE)]),
        "  node (pid 123): 1,234 of 2,000 samples have frames without a name: run it with --perf-basic-prof (Node.js: \
         NODE_OPTIONS=--perf-basic-prof)\n"
    );
    let jit = UnnamedCause::GeneratedCode { generator: None, has_names: false };
    let text = lines(&[group("jit", &[5, 6], jit)]);
    assert!(text.contains("jit (pids 5, 6): ") && text.contains("/tmp/perf-5.map"), "{text}");
    let denied = UnnamedCause::Memory(VmObstacle::Denied);
    let text = lines(&[group("py\u{1b}thon", &[1, 2, 3, 4, 5], denied)]);
    assert!(
        text.contains("py\\u{1b}thon (pids 1, 2, 3 and 2 more): ") && text.contains("CAP_SYS_PTRACE"),
        "{text}"
    );
    let other = UnnamedCause::GeneratedCode { generator: None, has_names: false };
    let in_container = UnnamedGroup { own_pid: 1, ..group("vm", &[9], other) };
    let text = lines(&[in_container]);
    assert!(text.contains("vm (pid 9): ") && text.contains("/tmp/perf-1.map"), "{text}");
    let stale = UnnamedCause::GeneratedCode { generator: Some(Runtime::V8), has_names: true };
    assert!(lines(&[group("node", &[9], stale)]).contains(INCOMPLETE_ADVICE));
    let text = lines(&[group("node", &[9], UnnamedCause::TooEarly(Runtime::V8))]);
    assert!(text.contains(EARLY_ADVICE) && !text.contains("--perf-basic-prof"), "{text}");
}

#[test]
fn lines_are_bounded_and_json_has_all() {
    let groups: Vec<_> = (0..15).map(|number| group(&format!("program{number}"), &[number], NODE)).collect();
    let text = lines(&groups);
    assert_eq!(text.lines().count(), GROUPS_MAX + 1);
    assert!(text.ends_with("  and 5 more programs\n"));
    assert_eq!(lines(&groups[..GROUPS_MAX]).lines().count(), GROUPS_MAX);
    let document = to_json(&groups);
    assert_eq!(document.as_array().map(Vec::len), Some(15));
    let keys: Vec<_> = document[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["cause", "next", "pids", "program", "runtime", "samples", "unnamed"]);
    assert_eq!((&document[0]["runtime"], &document[0]["cause"]), (&"v8".into(), &"generated_code".into()));
}

#[test]
fn processes_are_grouped_if_enough_of_their_samples_are_unnamed() {
    let mut namer = Namer::new(NamingOptions::default());
    let mut samples = UnnamedSamples::default();
    let mut add = |pid: u32, name: &str, anonymous: u64, native: u64| {
        let key = ProcessKey { pid: FIRST_PID + pid, instance: 1 };
        samples.note_process(key, &description(name));
        for number in 0..anonymous + native {
            let mut event = event(1 + number % 7, None);
            event.process = key;
            if number >= anonymous {
                let frame = RawFrame::new(RawFrameKind::Kernel, 0x1000, false, false);
                event.stack = Some(Arc::new(Stack::new(8, [frame].into())));
            }
            samples.note_event(&event, &namer);
        }
    };
    add(1, "app", 50, 50);
    add(2, "app", 10, 90);
    // Just below and just at the share that is reported.
    add(3, "few", 1, 100);
    add(4, "enough", 1, 99);
    add(5, "native", 0, 100);
    add(6, "python3", 0, 30);
    samples.note_process(ProcessKey { pid: FIRST_PID + 7, instance: 1 }, &description("idle"));

    // Without the switch for names in files and of generated code, nothing is missing.
    assert_eq!(samples.groups(&mut namer, &[], 0), []);
    let mut namer = Namer::new(NamingOptions { native: true, ..NamingOptions::default() });
    // Nothing is known of the processes' code.
    assert_eq!(samples.groups(&mut namer, &[], 0), []);
    let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
    for key in samples.processes.keys() {
        // This process publishes no names.
        let source = JitSource::new(Pid(std::process::id()), std::iter::empty(), &reader).unwrap();
        namer.add_jit_source(*key, Arc::new(source));
    }
    let denied = [6, 7].map(|pid| ProcessKey { pid: FIRST_PID + pid, instance: 1 });
    let groups = samples.groups(&mut namer, &denied, 0);
    let found: Vec<_> = groups
        .iter()
        .map(|group| (&*group.program, &*group.pids, group.unnamed, group.total, group.cause_label()))
        .collect();
    assert_eq!(
        found,
        [
            ("app", &[FIRST_PID + 1, FIRST_PID + 2][..], 60, 200, "generated_code"),
            ("python3", &[FIRST_PID + 6], 30, 30, "memory_denied"),
            ("enough", &[FIRST_PID + 4], 1, 100, "generated_code"),
        ]
    );
}

#[test]
fn code_in_files_that_exist_only_in_memory_is_generated() {
    let mut namer = Namer::new(NamingOptions { native: true, ..NamingOptions::default() });
    let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
    let key = ProcessKey { pid: 7, instance: 1 };
    let source = JitSource::new(Pid(std::process::id()), std::iter::empty(), &reader).unwrap();
    namer.add_jit_source(key, Arc::new(source));
    let mut samples = UnnamedSamples::default();
    for (file, path) in [(1, "/memfd:doublemapper (deleted)"), (2, "/usr/bin/memfd")] {
        let info = Arc::new(FileInfo {
            path: path.to_owned(),
            build_ids: BuildIds::default(),
            hash: None,
            loads: Vec::new(),
            content: None,
            companions: Companions::default(),
        });
        namer.add_file(FileId(file), info);
        let mut event = event(file.into(), None);
        let frame = RawFrame::new(RawFrameKind::Native { file }, 0x1000, false, false);
        event.stack = Some(Arc::new(Stack::new(file.into(), [frame].into())));
        event.process = key;
        samples.note_event(&event, &namer);
    }
    let groups = samples.groups(&mut namer, &[], 0);
    assert_eq!(groups.iter().map(|group| (group.unnamed, group.total)).collect::<Vec<_>>(), [(1, 2)]);
}
