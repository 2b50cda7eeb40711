//! Checks the output with pprof's own tool.
#![cfg(test)]

use std::process::Command;
use std::time::{Duration, SystemTime};

use sidewinder_kind::Kind;
use sidewinder_render::{
    AttributeSetIndex, BinaryIndex, FrameIndex, FrameType, NameStyle, Profile, ProfileBinary, ProfileFormat,
    ProfileFrame, ProfileSample, ProfileSpan, ProfileThread, SampleType, SpanIndex, StackIndex, ThreadIndex,
    write,
};

fn profile() -> Profile {
    let frame = |name: &str, binary, frame_type, address| ProfileFrame {
        is_named: true,
        name: name.into(),
        binary: Some(BinaryIndex(binary)),
        frame_type,
        address,
        path: if frame_type == FrameType::Native { "/src/app.c" } else { "" }.into(),
        line: if frame_type == FrameType::Native { 7 } else { 0 },
        ..ProfileFrame::default()
    };
    let sample = |stack, count| ProfileSample {
        slice: 0,
        thread: ThreadIndex(0),
        span: Some(SpanIndex(0)),
        state: None,
        attributes: AttributeSetIndex::EMPTY,
        stack: StackIndex(stack),
        count,
    };
    let stack = |frames: &[u32]| frames.iter().copied().map(FrameIndex).collect();
    let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 100 });
    Profile {
        start: SystemTime::now(),
        duration: Duration::from_secs(1),
        binaries: vec![
            ProfileBinary { path: String::from("/lib/libc.so.6"), ..ProfileBinary::default() },
            ProfileBinary {
                path: String::from("/usr/bin/app"),
                build_id: Some(String::from("00aa")),
                ..ProfileBinary::default()
            },
            ProfileBinary { path: String::from("[kernel]"), ..ProfileBinary::default() },
        ],
        frames: vec![
            frame("main", 1, FrameType::Native, 0x1000),
            frame("app::work<\"\u{1b}[31m\">", 1, FrameType::Rust, 0x2000),
            frame("vfs_write", 2, FrameType::Kernel, 0xffff_ffff_8100_0000),
            frame("__libc_start_main", 0, FrameType::Native, 0x3000),
        ],
        stacks: vec![stack(&[1, 0, 3]), stack(&[2, 1, 0, 3]), stack(&[0, 3])],
        threads: vec![ProfileThread {
            process: "app".into(),
            pid: 7,
            name: "app".into(),
            tid: 7,
            container: "".into(),
        }],
        spans: vec![ProfileSpan { trace_id: [0xab; 16], span_id: [0xcd; 8] }],
        // The first stack was seen at two times.
        samples: vec![
            sample(0, 50),
            ProfileSample { slice: 1, ..sample(0, 10) },
            sample(1, 30),
            sample(2, 10),
        ],
        ..Profile::new(String::from("app"), measure)
    }
}

#[test]
fn go_tool_pprof_shows_the_functions_with_their_shares() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pb.gz");
    let form = ProfileFormat::from_path(&path, &[]).unwrap();
    write(&profile(), form, NameStyle::Full, &mut std::fs::File::create(&path).unwrap()).unwrap();
    let pprof = |arguments: &[&str]| {
        Command::new("go")
            .args(["tool", "pprof", "-symbolize=none"])
            .args(arguments)
            .arg(&path)
            .env("PPROF_TMPDIR", folder.path())
            .output()
    };
    let Ok(output) = pprof(&["-top"]) else {
        eprintln!("SKIPPED: go is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
    for row in [
        ["600ms", "60.00%", "60.00%", "900ms", "90.00%", "app::work"],
        ["300ms", "30.00%", "90.00%", "300ms", "30.00%", "vfs_write"],
        ["100ms", "10.00%", "100%", "1000ms", "100%", "main"],
    ] {
        assert!(
            rows.iter().any(|found| found
                .iter()
                .zip(row)
                .filter(|(one, other)| one.starts_with(*other))
                .count()
                == 6),
            "{text}"
        );
    }
    assert!(!text.contains('\u{1b}'));
    assert!(text.lines().any(|line| line == "File: app"), "{text}");

    let raw = String::from_utf8(pprof(&["-raw"]).unwrap().stdout).unwrap();
    for part in [
        "samples/count",
        "cpu/nanoseconds",
        "/usr/bin/app",
        "00aa",
        "process:[app]",
        "trace_id:[abab",
        "0x2000",
    ] {
        assert!(raw.contains(part), "{part}: {raw}");
    }
}
