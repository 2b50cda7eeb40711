//! The code of functions in the page, with what each line and each instruction costs.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use sidewinder_kind::Kind;
use sidewinder_profile::{FrameType, LinkIndex};
use sidewinder_render::{
    Profile, ProfileSample, ProfileThread, SampleType, SourceExcerpt, SourcePart, StatedAttributes,
    ThreadIndex,
};

use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::sidewinder::{self, Running};
use sidewinder_e2e_support::workload::{Gated, LINES};
use sidewinder_e2e_support::{collector, paths, requirement};

use super::profiles::{PlainFrame, dictionary, stack};
use super::{folder, judge, judge_with, write_form};
use crate::telemetry::until;

/// A hundred samples of a program: 60 in what is inlined at line 12 of `search`, 20 at line 14, 10 in `compare`, which line 14
/// calls, and 10 in `main`. The first half of `search` is in the first second.
pub(super) fn search() -> Profile {
    let frame = |name, address, path, line| PlainFrame {
        name,
        file: "/srv/search",
        frame_type: FrameType::Native,
        address,
        source: (path, line),
        is_inlined: false,
    };
    let frames = [
        frame("main", 0x1000, "src/main.c", 5),
        PlainFrame { is_inlined: true, ..frame("hash", 0x2010, "src/hash.h", 3) },
        frame("search", 0x2010, "src/search.c", 12),
        frame("search", 0x2020, "src/search.c", 14),
        frame("compare", 0x3000, "", 0),
    ];
    let sample = |slice, number, count| ProfileSample {
        slice,
        thread: ThreadIndex(0),
        span: LinkIndex::default(),
        state: None,
        stated: StatedAttributes::default(),
        stack: stack(number),
        count,
    };
    let source: Vec<_> = (1..=40).map(|line| format!("\tline {line} of <b>search</b>;")).collect();
    let mut profile = Profile {
        start: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        duration: Duration::from_secs(2),
        slice: Duration::from_secs(1),
        dictionary: dictionary(&frames, &[&[1, 2, 0], &[3, 0], &[4, 3, 0], &[0]]),
        threads: vec![ProfileThread {
            process: "search".into(),
            pid: 7,
            name: "search".into(),
            tid: 7,
            container: "".into(),
        }],
        samples: vec![sample(0, 0, 60), sample(1, 1, 20), sample(1, 2, 10), sample(1, 3, 10)],
        ..Profile::new(String::from("./search"), SampleType::from_kind(Kind::Cpu { samples_per_second: 50 }))
    };
    profile.annotations.sources = vec![SourceExcerpt {
        path: "src/search.c".to_owned(),
        parts: vec![SourcePart::new(1, source.iter().map(String::as_str))],
    }];
    profile
}

/// Costs of lines, with the text of the source and without.
#[promise(Page, test_all)]
fn lines_have_their_costs_beside_them() -> Result<()> {
    write_form("code.html", &search())?;
    judge("lines_have_their_costs_beside_them", "code.test.mjs").map(drop)
}

/// The lines and instructions of a program whose shares are known: in the live page, in the page of a file, and in one that is
/// served from a file.
#[promise(Page, test_all)]
fn lines_and_instructions_cost_what_the_program_spends_there() -> Result<()> {
    let test = "lines_and_instructions_cost_what_the_program_spends_there";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let [port] = collector::free_ports()?;
    let mut workload = Gated::start(LINES.command(&[120])?)?;
    let sources = format!("--source-path={}", paths::e2e().join("workloads").display());
    let (out, page) = (folder()?.join("lines.otlp"), folder()?.join("lines.html"));
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "1999", "-p", &workload.pid().to_string(), &sources]);
    command.arg(format!("--ui=127.0.0.1:{port}")).arg("-o").arg(&out);
    let recording = Running::start_sampling(command)?;
    workload.open()?;
    let judge = |url: String| judge_with(test, "annotated.test.mjs", &[("LIVE", url)]);
    let is_judged = judge(format!("http://127.0.0.1:{port}/"))?;
    let ended = recording.stop()?;
    ensure!(ended.status.success(), "{}", ended.log);
    if !is_judged {
        return Ok(());
    }

    let [out, page] = [out, page].map(|path| path.display().to_string());
    let ended = sidewinder::run(&["view", &out, "-o", &page, &sources, "--assembly=3"])?;
    ensure!(ended.log.contains("the instructions of 3 of 3 functions"), "{}", ended.log);
    judge_with(test, "annotated.test.mjs", &[])?;
    let mut command = sidewinder::command()?;
    command.args(["view", &out, &sources]);
    let viewer = Running::start(command)?;
    let url = until("the address of the page", || {
        Ok(viewer.log().lines().find(|line| line.starts_with("http://")).map(str::to_owned))
    })?;
    judge(url)?;
    viewer.stop().context("view")?;

    // The same in the terminal.
    let lines = sidewinder::run(&["annotate", &out, "work", &sources])?.log;
    let hot = lines.lines().find(|line| line.contains("burn(6 * part);")).unwrap_or_default();
    ensure!(hot.contains("  <- burn "), "{lines}");
    let instructions = sidewinder::run(&["annotate", &out, "work", &sources, "--assembly"])?.log;
    let call = instructions.lines().find(|line| line.ends_with("<called>")).unwrap_or_default();
    // Of the two shares, that of the call with what it calls; its own may be left out.
    let share =
        call.rsplit_once('%').and_then(|(shares, _)| shares.split_whitespace().last()?.parse::<f64>().ok());
    ensure!(share.is_some_and(|share| (12.0..28.0).contains(&share)), "{instructions}");
    ensure!(instructions.contains("lines.c:23  count = called(2 * part);"), "{instructions}");
    Ok(())
}
