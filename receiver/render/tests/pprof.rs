//! Checks the output with pprof's own tool.
#![cfg(test)]

use std::process::Command;
use std::time::{Duration, SystemTime};

use sidewinder_kind::Kind;
use sidewinder_profile::{
    BuildIds, Dictionary, FrameType, Link, Location, LocationIndex, Mapping, MappingIndex, SourceLine,
};
use sidewinder_render::{
    NameStyle, Profile, ProfileFormat, ProfileSample, ProfileThread, SampleType, StatedAttributes,
    ThreadIndex, write,
};

fn location(
    dictionary: &mut Dictionary,
    function: &str,
    mapping: MappingIndex,
    frame_type: FrameType,
    address: u64,
) -> LocationIndex {
    let (path, line) = if frame_type == FrameType::Native { ("/src/app.c", 7) } else { ("", 0) };
    let lines = [dictionary.add_line(&SourceLine { function, path, line, ..SourceLine::default() })];
    dictionary.add_location(&Location { mapping, address, frame_type, lines: &lines, ..Location::default() })
}

fn profile() -> Profile {
    let mut dictionary = Dictionary::default();
    let libc = dictionary.add_file("/lib/libc.so.6");
    let build_ids = BuildIds { gnu: Some("00aa"), ..BuildIds::default() };
    let filename = dictionary.add_string("/usr/bin/app");
    let attributes = dictionary.add_build_ids(&build_ids);
    let app = dictionary.add_mapping(Mapping { filename, attributes, ..Mapping::default() });
    let kernel = dictionary.add_file("[kernel]");
    let mut add = |function, mapping, frame_type, address| {
        location(&mut dictionary, function, mapping, frame_type, address)
    };
    let main = add("main", app, FrameType::Native, 0x1000);
    let work = add("app::work<\"\u{1b}[31m\">", app, FrameType::Rust, 0x2000);
    let vfs_write = add("vfs_write", kernel, FrameType::Kernel, 0xffff_ffff_8100_0000);
    let start = add("__libc_start_main", libc, FrameType::Native, 0x3000);
    let span = dictionary.add_link(Link { trace_id: [0xab; 16], span_id: [0xcd; 8] });
    let mut sample = |slice, stack: &[LocationIndex], count| ProfileSample {
        slice,
        thread: ThreadIndex(0),
        span,
        state: None,
        stated: StatedAttributes::default(),
        stack: dictionary.add_stack(stack),
        count,
    };
    let working = [work, main, start];
    // The first stack was seen at two times.
    let samples = vec![
        sample(0, &working, 50),
        sample(1, &working, 10),
        sample(0, &[vfs_write, work, main, start], 30),
        sample(0, &[main, start], 10),
    ];
    let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 100 });
    Profile {
        start: SystemTime::now(),
        duration: Duration::from_secs(1),
        dictionary,
        threads: vec![ProfileThread {
            process: "app".into(),
            pid: 7,
            name: "app".into(),
            tid: 7,
            container: "".into(),
        }],
        samples,
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
