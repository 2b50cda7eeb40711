//! Runtimes within each other: a program in Java that embeds Python, and a program of Node.js with an addon in C++. Functions call
//! each other through native code, and stacks have all of them in the order of their calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::session::{Settings, profile_processes};
use sidewinder_e2e_support::{java, paths, python, requirement};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedEvent;

use crate::python::embedding_flags;

const SAMPLES_PER_SECOND: u32 = 997;
/// For how long a program is profiled: longer, where that was not enough. On a busy machine it takes seconds until the unwind tables of
/// its libraries are built.
const PROFILED_SECONDS: [u64; 3] = [8, 20, 50];
/// For how long it works, unless it is ended before.
const SECONDS: &str = "300";
/// After the first whole stack.
const WARM_UP_NS: u64 = 500_000_000;
/// Of some thousands, of which a busy machine has fewer.
const ENOUGH: usize = 100;
/// Of the samples in a function that computes, those with all of its callers.
const WHOLE_SHARE: f64 = 0.999;
/// Of all samples, those with a frame that says that others are missing: where an activation begins or ends.
const MARKED_SHARE: f64 = 0.02;

/// What calls each other, outermost first.
struct Chain {
    /// The first function, in which the program stays.
    first: &'static str,
    /// These follow so often, each called by the one before it.
    round: &'static [&'static str],
    rounds: usize,
    /// What computes: a function, and how many of the last round are not yet called then.
    leaves: &'static [(&'static str, usize)],
}

impl Chain {
    fn expected(&self) -> Vec<&'static str> {
        let rounds = (0..self.rounds).flat_map(|_| self.round.iter().copied());
        std::iter::once(self.first).chain(rounds).collect()
    }

    /// Whether functions end in one that computes.
    fn is_of_leaf(&self, functions: &[String]) -> bool {
        functions.last().is_some_and(|last| self.leaves.iter().any(|(leaf, _)| last == leaf))
    }

    /// Whether the last function computes, and those before it are all of its callers.
    fn is_whole(&self, functions: &[String]) -> bool {
        let expected = self.expected();
        functions.split_last().is_some_and(|(last, callers)| {
            self.leaves
                .iter()
                .any(|(leaf, missing)| last == leaf && callers == &expected[..expected.len() - missing])
        })
    }

    /// Whether functions are in the order in which they call each other: others may follow, but none is missing between them.
    fn is_in_order(&self, functions: &[String]) -> bool {
        let expected = self.expected();
        let is_start = functions.len() <= expected.len() && functions == &expected[..functions.len()];
        is_start || self.is_whole(functions)
    }
}

/// Of Java, which calls Python, which calls Java.
const EMBEDDED: Chain = Chain {
    first: "Embeds.serve(double)",
    round: &[
        "Embeds.enter(int)",
        "Embeds.call(int)",
        "Java_Embeds_call",
        "handle",
        "respond",
        "call_back",
        "Embeds.callback(int)",
    ],
    rounds: 3,
    leaves: &[("Embeds.compute()", 0), ("burn", 2)],
};
/// Of JavaScript, which calls C++, which calls JavaScript.
const ADDON: Chain =
    Chain { first: "serve", round: &["outer", "CallThrough", "inner"], rounds: 3, leaves: &[("compute", 0)] };

/// The functions of a stack from the first one of the chain on, outermost first: those of virtual machines but for the JDK's own, which
/// tell the time, and native ones of the chain.
fn functions(event: &DecodedEvent<'_>, chain: &Chain) -> Vec<String> {
    let frames = event.sample.stack.iter().rev().flat_map(|frame| {
        let is_of_machine =
            matches!(frame.frame_type(), Some(FrameType::Jvm | FrameType::CPython | FrameType::V8js));
        let lines = frame.lines.iter().rev();
        lines.map(move |line| (is_of_machine, line.function.split("(napi_env__").next().unwrap_or_default()))
    });
    let is_of_chain = |(is_of_machine, name): &(bool, &str)| {
        (*is_of_machine && !name.starts_with("java.")) || chain.round.contains(name)
    };
    let functions = frames.filter(is_of_chain).map(|(_, name)| name.to_owned());
    functions.skip_while(|name| name != chain.first).collect()
}

/// The functions of the complete stacks in which a program does what it is for, since shortly after the first whole chain.
fn profile(load: &Load, seconds: u64, chain: &Chain) -> Result<Vec<Vec<String>>> {
    let settings = Settings::at(SAMPLES_PER_SECOND);
    let received = profile_processes(settings, &[load.pid()], Duration::from_secs(seconds))?.received;
    let complete = received.events().filter(|event| event.sample.outcome().is_none());
    let mut stacks: Vec<_> = complete.map(|event| (event.time_unix_ns, functions(&event, chain))).collect();
    stacks.sort();
    let first = stacks.iter().find(|(_, functions)| chain.is_whole(functions));
    let start_ns = first.map_or(u64::MAX, |(time_ns, _)| time_ns + WARM_UP_NS);
    let warm =
        stacks.into_iter().filter(|(time_ns, functions)| *time_ns >= start_ns && !functions.is_empty());
    Ok(warm.map(|(_, functions)| functions).collect())
}

/// Profiles a program until there is enough of it, and ends it.
fn judge(what: &str, command: Command, chain: &Chain) -> Result<()> {
    let load = Load::start(command)?;
    for seconds in PROFILED_SECONDS {
        let stacks = profile(&load, seconds, chain)?;
        let is_marker = |name: &String| name.starts_with('[');
        let (marked, named): (Vec<_>, Vec<_>) =
            stacks.iter().partition(|functions| functions.iter().any(is_marker));
        let wrong: Vec<_> = named.iter().filter(|functions| !chain.is_in_order(functions)).collect();
        let in_leaf = named.iter().filter(|functions| chain.is_of_leaf(functions)).count();
        let whole = named.iter().filter(|functions| chain.is_whole(functions)).count();
        eprintln!(
            "{what}: {} stacks, {whole} of {in_leaf} whole, {} with a marker, {} wrong",
            stacks.len(),
            marked.len(),
            wrong.len()
        );
        ensure!(wrong.is_empty(), "{what}: {wrong:#?}");
        if in_leaf >= ENOUGH {
            ensure!(whole as f64 >= WHOLE_SHARE * in_leaf as f64, "{what}: {whole} of {in_leaf}");
            ensure!(marked.len() as f64 <= MARKED_SHARE * stacks.len() as f64, "{what}: {marked:#?}");
            return Ok(());
        }
    }
    bail!("{what}: too few samples")
}

#[promise(MixedStacks)]
fn python_within_java() -> Result<()> {
    let test = "Python within Java";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    let Some(home) = java::homes(None).into_iter().next() else {
        return requirement::absent(test, "no JDK in /usr/lib/jvm");
    };
    let interpreters =
        [13, 11].into_iter().filter_map(python::of_pyenv).chain([PathBuf::from(python::SYSTEM)]);
    for interpreter in interpreters {
        let classes = java::compiled(&["Embeds.java"])?;
        let Some(flags) = embedding_flags(&interpreter)? else { continue };
        let library = java::native_library(&home, "embeds_java.c", &flags, classes.path())?;
        let mut command = Command::new("env");
        let python_home = interpreter.parent().and_then(Path::parent).context("no folder")?;
        command.arg(format!("PYTHONHOME={}", python_home.display())).arg("PYTHONDONTWRITEBYTECODE=1");
        command.arg(home.join("bin/java")).arg("-cp").arg(classes.path()).arg("Embeds").arg(library);
        command.arg(paths::e2e().join("workloads/python")).arg(SECONDS);
        let what = format!("{} in {}", interpreter.display(), home.display());
        return judge(&what, command, &EMBEDDED);
    }
    requirement::absent(test, "no CPython to embed here: `apt install python3-dev`, or pyenv")
}

#[promise(MixedStacks, test_all)]
fn an_addon_within_node() -> Result<()> {
    let test = "an addon within Node.js";
    let packages = paths::e2e().join("examples/node");
    if !requirement::ebpf(test)? || !requirement::packages(test, &packages)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (addon, workloads) = (folder.path().join("addon.node"), paths::e2e().join("workloads/node"));
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"]);
    compiler.arg(packages.join("node_modules/node-api-headers/include")).arg(workloads.join("addon.cc"));
    run(compiler.arg("-o").arg(&addon))?;
    ensure!(fs::exists(&addon)?, "there is no addon");
    let mut command = Command::new("node");
    command.arg(workloads.join("addon.js")).arg(addon).arg(SECONDS);
    judge(test, command, &ADDON)
}
