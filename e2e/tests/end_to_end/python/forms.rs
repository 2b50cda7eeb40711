//! The table, and the forms that are text, name Python functions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::python::{self, PythonProgram};
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::sidewinder::{self, Running};

const PATIENCE: Duration = Duration::from_secs(120);

/// Records one second of one chain, with a table. What is in the file, and what is printed.
fn recorded(output: &Path, chain: &str) -> Result<(Vec<u8>, String)> {
    let program = PythonProgram::new(Path::new(python::SYSTEM), "chains.py");
    let program: Command = program.command(&["1", "--only", chain]);
    let mut command = sidewinder::command()?;
    command.args(["record", "-F", "997", "--table", "-o"]).arg(output).arg("--");
    command.arg(program.get_program()).args(program.get_args());
    let ended = Running::start(command)?.wait(PATIENCE)?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    Ok((std::fs::read(output)?, ended.log))
}

const CHAIN: [&str; 6] = [
    "methods",
    "Outer.Inner.method",
    "Outer.Inner.class_method",
    "Outer.Inner.static_method",
    "Outer.Inner.static_method.<locals>.local",
    "burn",
];

/// Whether these are frames of a folded stack, in this order. Up to 3.10 there are native ones between them.
fn has_chain(line: &str) -> bool {
    let stack = line.rsplit_once(' ').map_or(line, |(stack, _)| stack);
    let mut frames = stack.split(';');
    CHAIN.iter().all(|name| frames.any(|frame| frame == *name))
}

#[promise(CPython, test_all)]
fn the_table_and_every_form_name_python_functions() -> Result<()> {
    let name = "forms of Python's frames";
    if !requirement::python(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let (folded, table) = recorded(&folder.path().join("out.folded"), "methods")?;
    let folded = String::from_utf8(folded)?;
    ensure!(
        folded.lines().any(has_chain),
        "no stack has {CHAIN:?}, as for example {:?}",
        folded.lines().max_by_key(|line| line.len())
    );
    ensure!(table.contains(" burn "), "{table}");
    for form in ["out.speedscope.json", "out.firefox.json", "out.svg"] {
        let (file, _) = recorded(&folder.path().join(form), "identifiers")?;
        let file = String::from_utf8(file)?;
        ensure!(file.contains("Größe.länge") && file.contains("π_的_函数"), "{form} lacks the names");
    }
    Ok(())
}
