//! With a loop of tail calls: CPython 3.14 of python-build-standalone, which uv installs. Clang has put copies of the loop's
//! function into its callers, and BOLT has laid them out.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use sidewinder_e2e_support::command::run;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::{lock, paths, requirement};

use super::million::a_million_frames;
use super::runs_long;
use super::versions::every_chain;

/// A module of Go that has such builds for programs in Go to embed, and its version, which begins with CPython's.
const MODULE: &str = "github.com/kluctl/go-embed-python@v0.0.0-3.14.6-20260610-1";
const FOLDER_OF_FILES: &str = "python/internal/data/linux-amd64";

/// The interpreter out of the module, fetched once.
pub(super) fn fetched() -> Result<PathBuf> {
    let folder = paths::cache().join("python-of-tail-calls");
    let interpreter = folder.join("bin/python3.14");
    fs::create_dir_all(paths::cache())?;
    let _lock = lock::exclusive(&folder)?;
    if !interpreter.is_file() {
        let scratch = tempfile::tempdir_in(paths::cache())?;
        let told =
            run(Command::new("go").current_dir(scratch.path()).args(["mod", "download", "-json", MODULE]))?;
        let told: Value = serde_json::from_str(&told).with_context(|| told.clone())?;
        let module = told["Dir"].as_str().context("no folder")?;
        // Large files are compressed, and nothing may be written or executed.
        let unpack =
            "cp -r \"$0/.\" . && chmod -R u+w . && find . -name '*.gz' -exec gunzip {} + && chmod a+x bin/*";
        run(Command::new("sh")
            .current_dir(scratch.path())
            .args(["-c", unpack])
            .arg(format!("{module}/{FOLDER_OF_FILES}")))?;
        fs::rename(scratch.keep(), &folder)?;
    }
    Ok(interpreter)
}

#[promise(CPython, test_all)]
fn a_loop_of_tail_calls() -> Result<()> {
    let name = "CPython 3.14 with tail calls";
    if !runs_long(name)? || !requirement::program(name, "go")? {
        return Ok(());
    }
    let interpreter = fetched()?;
    every_chain(name, &interpreter)?;
    // Without a symbol, no frame of the loop can be told by its name.
    a_million_frames(&interpreter, false)
}
