//! Outcomes of interrupts, by what samples have of a stack.

/// Interrupts that find no user stack, whose samples have none.
const NO_USER_STACK: [&str; 2] = ["exec", "exiting"];

/// Whether a sample with such an outcome has a user stack.
pub(super) fn is_user_stack(outcome: Option<&str>) -> bool {
    !outcome.is_some_and(|outcome| NO_USER_STACK.contains(&outcome))
}
