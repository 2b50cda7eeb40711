//! The example in C with glibc 2.31 to 2.41 and musl: its variable in the program, in a library that is linked, and in one that
//! is opened later, as either dialect of compilers has it. Where it is is found in each of them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use sidewinder_e2e_debian::libc::{self, Libc};
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement};

use super::events_once_known;
use super::examples::{FUNCTIONS, Labels, judge, profile};

/// Where the variable is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Program,
    Linked,
    Opened,
}

/// All of them, with how the compiler asks where it is: by a function of the dynamic linker, or by a descriptor (gnu2).
const BUILDS: [(Place, &str); 5] = [
    (Place::Program, "gnu"),
    (Place::Linked, "gnu"),
    (Place::Linked, "gnu2"),
    (Place::Opened, "gnu"),
    (Place::Opened, "gnu2"),
];

/// Builds the example, as it stands, for one of them.
fn build(libc: Libc, place: Place, dialect: &str) -> Result<PathBuf> {
    let folder = paths::compiled()?.join("libraries").join(format!("{}-{place:?}-{dialect}", libc.name()));
    std::fs::create_dir_all(&folder)?;
    let example = paths::e2e().join("examples/c/spans.c");
    let elsewhere = paths::e2e().join("workloads/spans_elsewhere.c");
    let (library, program) = (folder.join("libspans.so"), folder.join("spans"));
    let compiler = || -> Result<Command> {
        let mut compiler = libc.compiler()?;
        compiler.args(["-O2", "-pthread", "-rdynamic"]).arg(format!("-mtls-dialect={dialect}"));
        Ok(compiler)
    };
    if place != Place::Program {
        let library_of = ["-shared", "-fPIC", "-Dmain=spans_main"];
        run(compiler()?.args(library_of).arg(&example).arg("-o").arg(&library))?;
    }
    let mut compiler = compiler()?;
    match place {
        Place::Program => compiler.arg(&example),
        Place::Linked => compiler.arg(&elsewhere).arg(&library),
        Place::Opened => {
            compiler.arg(format!("-DOPENED=\"{}\"", library.display())).arg(&elsewhere).arg("-ldl")
        }
    };
    run(compiler.arg("-o").arg(&program))?;
    Ok(program)
}

fn try_all(libc: Libc, builds: &[(Place, &str)]) -> Result<()> {
    for &(place, dialect) in builds {
        eprint!("{}, {}, {place:?}, {dialect}: ", libc.name(), libc::version(libc)?);
        let (handled, received) = profile(&mut Command::new(build(libc, place, dialect)?), false)?;
        judge(&handled, events_once_known(&received)?, FUNCTIONS, Labels::AtOnce)?;
    }
    Ok(())
}

#[promise(ThreadContext, test_all)]
fn a_variable_is_found_where_this_machines_library_and_musl_have_it() -> Result<()> {
    let test = "variables of libraries";
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    try_all(Libc::Here, &BUILDS[2..4])?;
    if requirement::program(test, "musl-gcc")? {
        try_all(Libc::Musl, &[(Place::Program, "gnu"), (Place::Opened, "gnu2")])?;
    }
    Ok(())
}

/// Each in turn takes seconds, and all of it minutes.
#[promise(ThreadContext, test_all)]
fn a_variable_is_found_with_every_library_from_glibc_2_31_to_2_41() -> Result<()> {
    let test = "variables with every C library";
    if std::env::var_os("SIDEWINDER_LIBRARIES").is_none() {
        return requirement::elsewhere(test, "make libraries-test");
    }
    if !requirement::ebpf(test)? || !requirement::program(test, "musl-gcc")? {
        return Ok(());
    }
    for (suite, version) in [("bullseye", "2.31"), ("bookworm", "2.36"), ("trixie", "2.41")] {
        let libc = Libc::Debian(suite);
        ensure!(libc::version(libc)? == version, "{suite} has {}", libc::version(libc)?);
        try_all(libc, &BUILDS)?;
    }
    try_all(Libc::Musl, &BUILDS)
}
