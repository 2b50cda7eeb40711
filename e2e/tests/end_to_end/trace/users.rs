//! What a program of another user publishes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use anyhow::Result;
use sidewinder_e2e_instrumented::examples::{build_c, handled_in};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::user::{can_read_others, copied_to, record};

use super::events_from_first_link;
use super::examples::{FUNCTIONS, Labels, judge, name_of_service};

/// Its resource, and the variables of its threads, are in its memory, to which ptrace(2) gives no access.
#[promise(ThreadContext, test_all)]
fn a_user_with_the_capabilities_of_a_sidecar_reads_contexts_of_another_user() -> Result<()> {
    let name = "contexts of another user, without CAP_SYS_PTRACE";
    if !can_read_others(name)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let mut program = copied_to(folder.path(), &build_c()?)?;
    let output = folder.path().join("out.otlp");
    let recorded = record(program.arg("6"), None, &["--attribute", "http.route"], &output)?;
    let received = Received::from_otlp_file(&output)?;
    // It is recorded from before it publishes anything, and then read again after some time.
    judge(&handled_in(&recorded.printed)?, events_from_first_link(&received)?, FUNCTIONS, Labels::AtOnce)?;
    assert_eq!(name_of_service(&received).as_deref(), Some("spans-in-c"));
    Ok(())
}
