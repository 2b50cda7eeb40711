//! The code that HotSpot makes for a native method, of which a program does little else than enter and leave it
//! (`workloads/Natives.java`).

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{java, requirement};

use super::{ENOUGH, Origin, Sample, assert_complete, compiled, homes, is_long, profile};

const NATIVE: &str = "Natives.nothing()";
const CALLER: &str = "Natives.calls()";
/// The first one's caller has the frame in which a wrong caller is found most often.
const COMPILERS: [&[&str]; 3] = [&["-XX:TieredStopAtLevel=1"], &[], &["-Xint"]];

/// The frames of the program's methods in a complete stack with the native one.
fn functions(sample: &Sample) -> Vec<&str> {
    let names = sample.frames.iter().map(|frame| &*frame.name);
    names.filter(|name| name.starts_with("Natives.")).collect()
}

#[promise(HotSpot, test_all)]
fn a_native_method_has_its_caller_wherever_its_code_is_interrupted() -> Result<()> {
    let test = "native methods of Java";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let Some(classes) = compiled(test, &["Natives.java"])? else { return Ok(()) };
    for home in homes(None) {
        let library = java::native_library(&home, "natives.c", &[], classes.path())?;
        let library = library.to_str().context("the folder's name is no text")?;
        let what = home.display().to_string();
        let origin = Origin::Home(home);
        for options in &COMPILERS[..if is_long() { COMPILERS.len() } else { 1 }] {
            let what = format!("{what} {}", options.join(" "));
            let samples = profile(&origin, classes.path(), options, &["Natives", library])?;
            assert_complete(&what, &samples);
            let complete = samples.iter().filter(|sample| sample.is_complete()).map(functions);
            let native: Vec<_> = complete.filter(|functions| functions.contains(&NATIVE)).collect();
            let wrong: Vec<_> =
                native.iter().filter(|functions| !functions.ends_with(&[CALLER, NATIVE])).collect();
            eprintln!("{what}: {} stacks with the native method, {} wrong", native.len(), wrong.len());
            ensure!(
                native.len() >= ENOUGH && wrong.is_empty(),
                "{what}: {} stacks: {wrong:#?}",
                native.len()
            );
        }
    }
    Ok(())
}
