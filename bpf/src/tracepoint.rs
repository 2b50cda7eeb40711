//! Tracepoints of the kernel: their arguments, as its type information describes them, and programs at them.
//!
//! The kernel finds a tracepoint by its name (`BPF_RAW_TRACEPOINT_OPEN`), without tracefs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::btf::types::{DataSec, Enum, Enum64, FuncProto, Int, IntEncoding, Typedef};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, HasSize};
use libbpf_rs::libbpf_sys;
use rustix::io::Errno;
use thiserror::Error;

use crate::arch;
use crate::no_op_program::no_op_program;

/// Of the typedef that describes a tracepoint's function, before the tracepoint's name.
const TYPE_PREFIX: &str = "btf_trace_";

/// Why a program can't be at a tracepoint.
#[derive(Debug, Error)]
pub enum TracepointError {
    /// The kernel has no such tracepoint.
    #[error("this kernel has no tracepoint {name}{}", but_similar(similar))]
    Missing {
        /// Its name.
        name: String,
        /// Tracepoints whose names contain a part of it.
        similar: Vec<String>,
    },
    /// The kernel's type information can't be read.
    #[error("can't read the kernel's type information, which says what the arguments of tracepoints are")]
    TypeInformation(#[source] libbpf_rs::Error),
    /// The tracepoint is a module's.
    #[error(
        "the arguments of {0} are not known: the kernel's type information lacks it, for example because it belongs to a module"
    )]
    UnknownArguments(String),
    /// The argument is a pointer or a structure, or there is none.
    #[error("arg{index} is no number: {}", numbers_of(numbers))]
    NoNumber {
        /// Its index.
        index: u8,
        /// The arguments that are numbers.
        numbers: Vec<usize>,
    },
    /// Interrupts can't be told from processes.
    #[error(
        "can't distinguish interrupts from processes: the kernel's type information has no per-CPU variables"
    )]
    NoContexts,
    /// The kernel refused the program there.
    #[error("the kernel refused the program at the tracepoint")]
    Refused(#[source] io::Error),
    /// The thread that keeps the privileges has ended.
    #[error("can't reach the thread that opens events")]
    Opener(#[source] io::Error),
    /// The program was not loaded.
    #[error("no program was loaded for it")]
    NoProgram,
}

impl TracepointError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::Refused(source) if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

fn but_similar(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", but {}", names.join(", ")) }
}

fn numbers_of(arguments: &[usize]) -> String {
    let names: Vec<String> = arguments.iter().map(|index| format!("arg{index}")).collect();
    if names.is_empty() { "it has none".to_owned() } else { format!("its numbers are {}", names.join(", ")) }
}

/// An argument that is a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumericArgument {
    /// Its index.
    pub index: u8,
    /// Its width: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether it has a sign.
    pub is_signed: bool,
}

impl NumericArgument {
    /// The argument with an index, by its type.
    ///
    /// # Errors
    /// If the tracepoint is not known, or the argument is no number.
    pub fn find(tracepoint: &str, index: u8) -> Result<Self, TracepointError> {
        let types = Btf::from_vmlinux().map_err(TracepointError::TypeInformation)?;
        let unknown = || TracepointError::UnknownArguments(tracepoint.to_owned());
        let function = function_of(&types, tracepoint).ok_or_else(unknown)?;
        // The first parameter is the attachment's own.
        let kinds: Vec<_> = function
            .iter()
            .skip(1)
            .map(|parameter| types.type_by_id::<BtfType<'_>>(parameter.ty).and_then(number))
            .collect();
        let found = kinds.get(usize::from(index)).copied().flatten();
        let (bits, is_signed) = found.ok_or_else(|| {
            let numbers = kinds.iter().enumerate().filter(|(_, kind)| kind.is_some());
            TracepointError::NoNumber { index, numbers: numbers.map(|(index, _)| index).collect() }
        })?;
        Ok(Self { index, bits, is_signed })
    }
}

/// The type of the functions that a tracepoint calls.
fn function_of<'types>(types: &'types Btf<'_>, tracepoint: &str) -> Option<FuncProto<'types>> {
    let pointer = types.type_by_name::<Typedef<'_>>(&format!("{TYPE_PREFIX}{tracepoint}"))?.next_type()?;
    (pointer.kind() == BtfKind::Ptr).then(|| pointer.next_type()).flatten()?.try_into().ok()
}

/// The width in bits of a type of numbers, and whether these have a sign.
fn number(of: BtfType<'_>) -> Option<(u8, bool)> {
    let of = of.skip_mods_and_typedefs();
    let bits = |bytes: usize| u8::try_from(8 * bytes).ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64));
    match of.kind() {
        BtfKind::Int => {
            let int = Int::try_from(of).ok()?;
            Some((bits(int.size())?, matches!(int.encoding, IntEncoding::Signed)))
        }
        BtfKind::Enum => {
            let of = Enum::try_from(of).ok()?;
            Some((bits(of.size())?, of.is_signed()))
        }
        BtfKind::Enum64 => {
            let of = Enum64::try_from(of).ok()?;
            Some((bits(of.size())?, of.is_signed()))
        }
        _ => None,
    }
}

/// The most names that a message lists.
const LISTED_MAX: usize = 6;

/// Tracepoints whose names have the longest part in common with a name that none has.
fn similar_names(name: &str) -> Vec<String> {
    let Ok(types) = Btf::from_vmlinux() else { return Vec::new() };
    let names: Vec<String> = types
        .type_by_kind::<Typedef<'_>>()
        .filter_map(|of| Some(of.name()?.to_str()?.strip_prefix(TYPE_PREFIX)?.to_owned()))
        .collect();
    let mut words: Vec<&str> = name.split('_').filter(|word| word.len() > 2).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    let with =
        |word: &str| names.iter().filter(|name| name.contains(word)).take(LISTED_MAX).cloned().collect();
    words.into_iter().map(with).find(|found: &Vec<String>| !found.is_empty()).unwrap_or_default()
}

/// The distance in bytes from a CPU's run queue to its preempt count, or to the variable that has it; 0 where tasks have the
/// count. `None` if the kernel's type information has no variables of CPUs.
pub(crate) fn preempt_count_from_rq() -> Option<i64> {
    if arch::PREEMPT_COUNTS.is_empty() {
        return Some(0);
    }
    let types = Btf::from_vmlinux().ok()?;
    let section = types.type_by_name::<DataSec<'_>>(".data..percpu")?;
    let offset_of = |wanted: &str| {
        let of_name = section.iter().find(|variable| {
            let known = types.type_by_id::<BtfType<'_>>(variable.ty);
            known.and_then(|known| known.name()).is_some_and(|name| name == wanted)
        });
        of_name.map(|variable| i64::from(variable.offset))
    };
    let run_queue = offset_of("runqueues")?;
    let preempt_count = arch::PREEMPT_COUNTS.iter().copied().find_map(offset_of)?;
    Some(preempt_count - run_queue)
}

/// Attaches a program (raw_tp) to a tracepoint, until the result is closed.
pub(crate) fn open(program: &OwnedFd, tracepoint: &str) -> Result<OwnedFd, TracepointError> {
    let name = CString::new(tracepoint).map_err(|error| TracepointError::Refused(error.into()))?;
    // SAFETY: the name ends with NUL and lives during the call.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) };
    if link >= 0 {
        // SAFETY: the kernel just created this descriptor, and nobody else has it.
        return Ok(unsafe { OwnedFd::from_raw_fd(link) });
    }
    let error = io::Error::from_raw_os_error(-link);
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => {
            Err(TracepointError::Missing { name: tracepoint.to_owned(), similar: similar_names(tracepoint) })
        }
        _ => Err(TracepointError::Refused(error)),
    }
}

/// Tries whether programs can be at tracepoints, at a rare one.
///
/// # Errors
/// Why not.
pub(crate) fn probe_tracepoints() -> Result<(), TracepointError> {
    preempt_count_from_rq().ok_or(TracepointError::NoContexts)?;
    let program = no_op_program(libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, 0);
    open(&program.map_err(TracepointError::Refused)?, "sched_process_exec").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_types_that_the_kernel_gives_them() {
        let find = |name, index| NumericArgument::find(name, index);
        // TP_PROTO(struct pt_regs *regs, long ret)
        assert_eq!(find("sys_exit", 1).unwrap(), NumericArgument { index: 1, bits: 64, is_signed: true });
        // TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, ...)
        assert_eq!(find("sched_switch", 0).unwrap(), NumericArgument { index: 0, bits: 8, is_signed: false });
        let pointer = find("sys_exit", 0).unwrap_err().to_string();
        assert_eq!(pointer, "arg0 is no number: its numbers are arg1");
        assert!(find("sys_exit", 7).is_err());
        assert!(matches!(find("sched_nothing", 0), Err(TracepointError::UnknownArguments(_))));
    }

    #[test]
    fn names_with_the_longest_common_word_are_similar() {
        let names = similar_names("sched_process_forked");
        assert!(!names.is_empty() && names.len() <= LISTED_MAX, "{names:?}");
        assert!(names.iter().all(|name| name.contains("process")), "{names:?}");
        assert_eq!(similar_names("zz"), Vec::<String>::new());
    }
}
