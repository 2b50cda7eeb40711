//! The log of the kernel's verifier, as part of our own log.

use libbpf_rs::{OpenObject, PrintLevel, set_print};
use tracing::{info, warn};

/// What is logged when programs are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum VerifierLog {
    /// Nothing.
    #[default]
    Nothing,
    /// Why the verifier refuses a program.
    Refusals,
    /// That, and the statistics of the programs that it accepts.
    Statistics,
}

/// Statistics alone, which are some lines, without each instruction, which are megabytes (`BPF_LOG_STATS` in
/// `include/linux/bpf_verifier.h`, Linux 5.2).
pub(crate) const LOG_STATISTICS: u32 = 4;

/// A message of libbpf that contains this is the log of one program.
const LOG_MARK: &str = "PROG LOAD LOG";
/// The length of a log that is kept, in bytes. It ends with the reason for a refusal.
const LOG_BYTES_MAX: usize = 16 << 10;

impl VerifierLog {
    /// Loads an object's programs by `load`, and logs what the verifier says about them. Programs that another thread loads
    /// at the same time are logged, too.
    pub(crate) fn log<'obj, Open, Loaded>(self, mut open: Open, load: impl FnOnce(Open) -> Loaded) -> Loaded
    where
        Open: libbpf_rs::skel::OpenSkel<'obj>,
    {
        let level = match self {
            Self::Nothing => return load(open),
            Self::Refusals => PrintLevel::Warn,
            Self::Statistics => {
                request_statistics(open.open_object_mut());
                PrintLevel::Debug
            }
        };
        set_print(Some((level, log_message)));
        let loaded = load(open);
        set_print(None);
        loaded
    }
}

fn request_statistics(object: &mut OpenObject) {
    for mut program in object.progs_mut().filter(|program| program.autoload()) {
        program.set_log_level(LOG_STATISTICS);
    }
}

/// Logs a message of libbpf if it is the log of a program. libbpf passes that of a refused one as a warning.
fn log_message(level: PrintLevel, message: String) {
    if !message.contains(LOG_MARK) {
        return;
    }
    let log = last_lines(&message);
    match level {
        PrintLevel::Warn => warn!("the kernel's verifier refused a program:\n{log}"),
        PrintLevel::Info | PrintLevel::Debug => info!("the kernel's verifier accepted a program:\n{log}"),
    }
}

/// The last whole lines, at most [`LOG_BYTES_MAX`].
fn last_lines(log: &str) -> &str {
    let log = log.trim_end();
    let Some(first) = log.len().checked_sub(LOG_BYTES_MAX) else { return log };
    // The byte before: a line may begin exactly here.
    let line_end = log.as_bytes()[first.saturating_sub(1)..].iter().position(|byte| *byte == b'\n');
    line_end.and_then(|end| log.get(first.saturating_sub(1) + end + 1..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_cut_at_the_beginning_of_a_line() {
        assert_eq!(last_lines("a\nb\n"), "a\nb");
        let line = "x".repeat(99);
        let log = format!("{line}\n").repeat(1000) + "the reason\n";
        let cut = last_lines(&log);
        assert!(cut.len() <= LOG_BYTES_MAX && cut.len() > LOG_BYTES_MAX - 100);
        assert!(cut.starts_with(&line) && cut.ends_with("\nthe reason"));
        assert_eq!(last_lines(&"x".repeat(LOG_BYTES_MAX + 1)), "", "one line that is too long");
        assert_eq!(last_lines(&format!("a\n{}", "x".repeat(LOG_BYTES_MAX))), "x".repeat(LOG_BYTES_MAX));
    }
}
