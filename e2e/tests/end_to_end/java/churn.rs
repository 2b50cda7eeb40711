//! Classes come and go, and their code through a small code cache: no frame has the name of a method that was there before or
//! later (`workloads/Churn.java`). What could not be named in time has no name: most, since classes live for milliseconds.

use anyhow::Result;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;

use super::{Origin, UNKNOWN, compiled, homes, is_long, profile};

const SOURCES: [&str; 2] = ["Churn.java", "Churn0000000.java"];
/// Code is freed by a collection that the program asks for, or because the cache is full.
const OPTIONS: [&[&str]; 2] = [
    &[
        "-XX:ReservedCodeCacheSize=4m",
        "-XX:TieredStopAtLevel=1",
        "-XX:Tier3InvocationThreshold=50",
        "-Xmx64m",
    ],
    &["-Xint", "-Xmx64m"],
];
/// Of some thousand, of which a busy machine has fewer.
const ENOUGH: usize = 50;

/// The number of a frame's class.
fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("Churn")?.split_once('.')?.0.parse().ok()
}

fn judge(what: &str, origin: &Origin, classes: &std::path::Path, options: &[&str]) -> Result<()> {
    let samples = profile(origin, classes, options, &["Churn"])?;
    let (mut named, mut unknown, mut last) = (0, 0, 0);
    for sample in &samples {
        let numbers: Vec<u32> = sample.frames.iter().filter_map(|frame| number_of(&frame.name)).collect();
        unknown += sample.frames.iter().filter(|frame| frame.name == UNKNOWN).count();
        named += numbers.len();
        let Some(first) = numbers.first() else { continue };
        assert!(numbers.iter().all(|number| number == first), "{what}: two classes in {sample:?}");
        assert!(*first >= last, "{what}: {first} after {last}: {sample:?}");
        last = *first;
    }
    eprintln!("{what}: {named} frames of classes up to {last} have the right name, {unknown} have none");
    assert!(named >= ENOUGH, "{what}: {named} frames");
    Ok(())
}

#[promise(HotSpot, test_all)]
fn no_method_has_the_name_of_one_that_was_freed() -> Result<()> {
    let test = "no_method_has_the_name_of_one_that_was_freed";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let Some(classes) = compiled(test, &SOURCES)? else { return Ok(()) };
    let homes: Vec<_> = homes(None).into_iter().take(if is_long() { usize::MAX } else { 1 }).collect();
    for home in homes {
        let name = home.display().to_string();
        let origin = Origin::Home(home);
        for options in &OPTIONS[..if is_long() { OPTIONS.len() } else { 1 }] {
            judge(&format!("{name} {options:?}"), &origin, classes.path(), options)?;
        }
    }
    Ok(())
}
