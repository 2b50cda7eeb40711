//! `sidewinder check` is for people at a terminal and for programs, and each gets a form of its own.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{paths, requirement, sidewinder};

const ESCAPE: char = '\u{1b}';

/// What it shows on a terminal of its own.
fn on_a_terminal(variables: &[(&str, &str)]) -> Result<String> {
    let mut script = Command::new("script");
    script.args(["--quiet", "--command"]).arg(format!("{} check", paths::sidewinder()?.display()));
    script.arg("/dev/null").env_remove("NO_COLOR").env("TERM", "xterm");
    let output = script.envs(variables.iter().copied()).output().context("cannot run script")?;
    Ok(String::from_utf8(output.stdout)?)
}

#[promise(Check)]
fn colours_are_for_terminals_that_show_them_and_people_who_want_them() -> Result<()> {
    if !requirement::program("colours on a terminal", "script")? {
        return Ok(());
    }
    let coloured = on_a_terminal(&[])?;
    ensure!(coloured.contains("\u{1b}[32mok     \u{1b}[0m  "), "{coloured:?}");
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let plain = on_a_terminal(&variables)?;
        ensure!(plain.contains("ok       ") && !plain.contains(ESCAPE), "{variables:?}: {plain:?}");
    }
    let piped = sidewinder::run(&["check"])?.log;
    ensure!(piped.contains("ok       ") && !piped.contains(ESCAPE), "{piped:?}");
    Ok(())
}

#[promise(Check)]
fn programs_get_a_document_that_agrees_with_the_exit_code() -> Result<()> {
    let ended = sidewinder::run(&["check", "--json"])?;
    let document: Value = serde_json::from_str(&ended.log)?;
    ensure!(document["ready"] == ended.status.success(), "{document}");
    let checks = document["checks"].as_array().context("no checks")?;
    let missing = checks.iter().any(|check| check["state"] == "missing");
    ensure!(missing != ended.status.success(), "{document}");
    for check in checks {
        let is_ok = check["state"] == "ok";
        ensure!(["why", "cost", "next"].iter().all(|key| check[key].is_null() == is_ok), "{check}");
    }
    Ok(())
}
