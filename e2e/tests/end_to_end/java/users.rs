//! Java runs as another user than the recorder, which may not read its memory by ptrace(2).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::Result;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::user::{can_read_others, record};

use super::{INLINED, Origin, assert_complete, assert_inlined, assert_lines, compiled, homes, samples_of};

const RUNS_FOR: Duration = Duration::from_secs(10);

#[promise(HotSpot, test_all)]
fn java_of_another_user_has_names() -> Result<()> {
    let test = "Java of another user, without CAP_SYS_PTRACE";
    if !requirement::ebpf(test)? || !can_read_others(test)? {
        return Ok(());
    }
    let Some(classes) = compiled(test, &["Chains.java"])? else { return Ok(()) };
    let Some(home) = homes(None).into_iter().next() else { return Ok(()) };
    fs::set_permissions(classes.path(), Permissions::from_mode(0o755))?;
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let output = folder.path().join("out.otlp");
    let mut program = Origin::Home(home).java(classes.path());
    program.args(["Chains", "inlined", "300"]);
    let pid = record(&program, Some(RUNS_FOR), &[], &output)?.pid;
    let samples = samples_of(&Received::from_otlp_file(&output)?, pid)?;
    assert_complete(test, &samples);
    let chains = assert_inlined(test, &samples);
    assert_lines(test, &chains, &INLINED[..INLINED.len() - 1])
}
