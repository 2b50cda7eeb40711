//! What a program of another user publishes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Result, ensure};
use sidewinder_e2e_instrumented::examples::{Example, build_c};
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::sidewinder::Running;
use sidewinder_e2e_support::user::{PROFILED, as_user, copied_to, unprivileged_profiler};

use super::SAMPLES_PER_SECOND;
use super::examples::{Labels, judge, name_of_service};

/// Its resource, and the variables of its threads, are read from its memory, to which ptrace(2) gives no access. The recorder
/// starts first: it knows the mappings from events alone.
#[test]
fn a_user_with_the_capabilities_of_a_sidecar_reads_contexts_of_another_user() -> Result<()> {
    let name = "contexts of another user, without CAP_SYS_PTRACE";
    if !requirement::ebpf(name)?
        || !requirement::program(name, "setpriv")?
        || !requirement::linux(name, (6, 1))?
    {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let mut program = copied_to(folder.path(), &build_c()?)?;
    let output = folder.path().join("out.otlp");
    let mut recorder = unprivileged_profiler(folder.path())?;
    recorder.args(["record", "-F", &SAMPLES_PER_SECOND.to_string(), "--comm", "spans-in-c"]);
    recorder.args(["--attribute", "http.route", "-o"]).arg(&output);
    let recorder = Running::start_sampling(recorder)?;
    let handled = Example::start(&mut as_user(PROFILED, &[], program.arg("6")))?.finish()?;
    let ended = recorder.stop()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.log);
    let received = Received::from_otlp_file(&output)?;
    judge(&handled, &received, Labels::AtOnce)?;
    assert_eq!(name_of_service(&received).as_deref(), Some("spans-in-c"));
    Ok(())
}
