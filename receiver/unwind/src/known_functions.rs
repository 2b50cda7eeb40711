//! Functions that are unwound by what they are, rather than by unwind information.
//!
//! The ELF entry point and the code that starts a thread or a coroutine have no caller. Compilers and C libraries mark
//! only some of them (`DW_CFA_undefined` for the return address), and some mark none. What unwinds for exceptions overwrites its
//! own frame in the end.

use object::{File, Object as _, ReadRef};
use sidewinder_unwind_table::{Architecture, Entry, EntryInterner, RowBuffer, RowSource, Rule, Summary};

use crate::arch;
use crate::arch::known::COROUTINE_START;
use crate::layers::{RangeRows, RangeStack};
use crate::memory::Memory;
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::{SymbolCandidate, for_each_code_symbol};

/// Functions that are the outermost frame of a stack throughout: the entry points of programs and of the dynamic
/// linker.
const ROOTS: [&[u8]; 2] = [b"_start", b"_dl_start_user"];

/// The function that a coroutine made by `makecontext` returns to. It is local to the C library and is found through
/// `makecontext`.
const COROUTINE_STARTS: [&[u8]; 1] = [b"__start_context"];
const MAKE_CONTEXT: &[u8] = b"makecontext";
const MAX_MAKE_CONTEXT_BYTES: u64 = 1024;

/// The same for Boost.Context, of which other programs contain a copy (PHP's fibers): a coroutine begins in its last
/// part and returns to it.
const MAKE_FCONTEXT: &[u8] = b"make_fcontext";

/// The return from a signal handler, in C libraries or the vDSO, and the functions that create a thread: their rules apply where no unwind
/// information covers them (musl; vDSOs without it).
const SIGNAL_RETURNS: [&[u8]; 4] = [b"__restore_rt", b"__restore", b"restore_rt", VDSO_SIGNAL_RETURN];
/// That of vDSOs. A thread that is in the system call of the function is at the address behind it, where a vDSO has padding.
const VDSO_SIGNAL_RETURN: &[u8] = b"__kernel_rt_sigreturn";
const CLONES: [&[u8]; 2] = [b"clone", b"__clone"];

/// The functions of GCC's unwinder that pass control to the handler of an exception.
const HAND_OVERS: [&[u8]; 4] =
    [b"_Unwind_RaiseException", b"_Unwind_Resume", b"_Unwind_Resume_or_Rethrow", b"_Unwind_ForcedUnwind"];
const MAX_HAND_OVER_BYTES: u64 = 4096;

/// The size assumed for a function without a known end. Entry points are that short.
const MAX_UNSIZED_BYTES: u64 = 64;

/// The most functions with these names that are kept, more than any file has.
const MAX_FUNCTIONS: usize = 256;
const MAX_RESOLVERS: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum KnownFunctionKind {
    Root,
    /// Begins a stack, too, but for its first instruction where that is entered as a function is: what it returns to is the
    /// dynamic linker, or nothing.
    EntryPoint,
    CoroutineStart,
    SignalReturn,
    Clone,
    /// A part of one of [`HAND_OVERS`], with its rule.
    HandOver(Rule),
}

#[derive(Clone, Debug)]
struct KnownFunction {
    start: u32,
    end: u32,
    /// Whether the end is only assumed.
    end_assumed: bool,
    kind: KnownFunctionKind,
}

/// The known functions of one file.
#[derive(Clone, Default, Debug)]
pub(crate) struct KnownFunctions {
    functions: Vec<KnownFunction>,
    /// Sorted starts of the functions that dynamic linkers call while they bind a symbol.
    resolvers: Vec<u32>,
    /// Whether a rule of the file starts from the [callee-saved register](Architecture::callee_saved).
    has_callee_saved_frames: bool,
    /// From the stack pointer of Haskell code up to where the C stack continues, in the file that enters Haskell.
    haskell_cfa_offset: Option<i32>,
}

/// Rare frames that identify a file.
#[derive(Default)]
pub(crate) struct CfiTraits {
    /// Some CFA starts from the [callee-saved register](Architecture::callee_saved): the file is
    /// glibc's dynamic linker.
    pub(crate) has_callee_saved_frames: bool,
    /// The distance from this stack pointer to the caller's, by a rule other than the CFA's: the file has `StgRun`,
    /// which enters Haskell.
    pub(crate) haskell_cfa_offset: Option<i32>,
}

impl KnownFunctions {
    /// The entry point, and the functions of `.symtab` and `.dynsym` with the known names.
    pub(crate) fn from_file<'data, R: ReadFile<'data>>(file: &File<'data, R>, code: &CodeRanges) -> Self {
        let mut known = Self::default();
        if file.entry() != 0 {
            known.add_unsized(file, code, file.entry(), KnownFunctionKind::EntryPoint);
        }
        known.add_named(file, file, code);
        known
    }

    /// Adds the functions with the known names among the symbols of `named`, which is `file` or another file about the
    /// same code.
    pub(crate) fn add_named<'named, 'data, N: ReadFile<'named>, R: ReadRef<'data>>(
        &mut self,
        named: &File<'named, N>,
        file: &File<'data, R>,
        code: &CodeRanges,
    ) {
        let has_callee_saved = code.architecture().callee_saved().is_some();
        for_each_code_symbol(named, |&SymbolCandidate { name, address, size, is_resolver, .. }| {
            if is_resolver {
                let is_room = has_callee_saved && self.resolvers.len() < MAX_RESOLVERS;
                self.resolvers.extend(code.offset(address).filter(|_| is_room));
                return;
            }
            if self.functions.len() >= MAX_FUNCTIONS {
                return;
            }
            if let Some(kind) = KnownFunctionKind::by_name(name) {
                let is_entry_point = kind == KnownFunctionKind::Root && address == file.entry();
                let kind = if is_entry_point { KnownFunctionKind::EntryPoint } else { kind };
                let behind = u64::from(name == VDSO_SIGNAL_RETURN && size > 0);
                self.add(code, address, size.saturating_add(behind), kind);
            } else if name == MAKE_CONTEXT
                && let Some(start) = coroutine_start(file, code, address, size)
            {
                self.add_unsized(file, code, start, KnownFunctionKind::CoroutineStart);
            } else if HAND_OVERS.contains(&name) {
                self.add_hand_over(file, code, address, size);
            } else if name == MAKE_FCONTEXT
                && let Some((start, kind)) = fcontext_start(file, code, address, size)
            {
                self.add(code, start, (address + size).saturating_sub(start), kind);
            }
        });
        self.functions.sort_unstable_by_key(|function| (function.start, function.end_assumed, function.kind));
        self.functions.dedup_by_key(|function| function.start);
        self.resolvers.sort_unstable();
        self.resolvers.dedup();
    }

    /// Takes over what the unwind information of the file reveals.
    pub(crate) fn apply_traits(&mut self, peculiarities: &CfiTraits) {
        self.has_callee_saved_frames |= peculiarities.has_callee_saved_frames;
        self.haskell_cfa_offset = peculiarities.haskell_cfa_offset;
    }

    /// In the file that enters Haskell: how far Haskell's stack pointer is below the caller's.
    pub(crate) fn haskell_cfa_offset(&self) -> Option<i32> {
        self.haskell_cfa_offset
    }

    /// Whether the rows of a function must state where its caller's callee-saved register is.
    ///
    /// The trampoline by which glibc binds symbols lazily (`_dl_runtime_resolve` and its variants) finds its own frame
    /// by this register, and is on the stack of everything it calls: functions of the dynamic linker, and those by
    /// which libraries choose among implementations. Tracking the register in all other files would enlarge tables
    /// without benefit.
    pub(crate) fn follows_callee_saved(&self, start: u32) -> bool {
        self.has_callee_saved_frames || self.resolvers.binary_search(&start).is_ok()
    }

    fn add(&mut self, code: &CodeRanges, address: u64, size: u64, kind: KnownFunctionKind) {
        let end_assumed = size == 0;
        let size = if end_assumed { MAX_UNSIZED_BYTES } else { size };
        if let Some((start, end)) = code.clip(address, address.saturating_add(size)) {
            self.functions.push(KnownFunction { start, end, end_assumed, kind });
        }
    }

    /// Adds a function known only by its start.
    fn add_unsized<'data, R: ReadRef<'data>>(
        &mut self,
        file: &File<'data, R>,
        code: &CodeRanges,
        address: u64,
        kind: KnownFunctionKind,
    ) {
        let before = self.functions.len();
        self.add(code, address, 0, kind);
        if let Some(added) = self.functions.get_mut(before)
            && let Some(length) = straight_length(file, code, address)
        {
            added.end = added.end.min(added.start.saturating_add(length));
        }
    }

    /// Adds the parts of a function of the unwinder in which it has overwritten its frame.
    fn add_hand_over<'data, R: ReadRef<'data>>(
        &mut self,
        file: &File<'data, R>,
        code: &CodeRanges,
        address: u64,
        size: u64,
    ) {
        let start = code.offset(address).filter(|_| size <= MAX_HAND_OVER_BYTES);
        let bytes = start.and_then(|start| code.bytes(file, start, size));
        let Some((parts, rule)) = bytes.and_then(|bytes| arch::hand_over(code.architecture(), bytes)) else {
            return;
        };
        for part in parts {
            let size = u64::from(part.end - part.start);
            self.add(
                code,
                address.saturating_add(part.start.into()),
                size,
                KnownFunctionKind::HandOver(rule),
            );
        }
    }

    /// The starts of all known functions.
    pub(crate) fn starts(&self) -> Vec<u32> {
        self.functions.iter().map(|function| function.start).collect()
    }

    /// Whether this address belongs to a function that begins a stack.
    pub(crate) fn is_root(&self, at: u32) -> bool {
        self.functions.iter().any(|function| {
            matches!(function.kind, KnownFunctionKind::Root | KnownFunctionKind::EntryPoint)
                && (function.start..function.end).contains(&at)
        })
    }

    /// Whether they include a function that creates threads.
    pub(crate) fn have_clone(&self) -> bool {
        self.functions.iter().any(|function| function.kind == KnownFunctionKind::Clone)
    }

    /// Narrows assumed ends by the range of a function from another source.
    pub(crate) fn clip_to(&mut self, (start, end): (u32, u32)) {
        for known in self.functions.iter_mut().filter(|known| known.end_assumed) {
            if start == known.start {
                (known.end, known.end_assumed) = (end, false);
            } else if start > known.start {
                known.end = known.end.min(start);
            } else if end > known.start {
                known.end = known.end.min(end);
            }
        }
    }

    /// The rows of functions that begin a stack, and of those that overwrite their frames; they override other sources.
    pub(crate) fn overriding(
        &self,
        architecture: Architecture,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        let root = entries.intern(Entry::Rule(architecture.root()));
        let entered = arch::bytes_entered_by_register(architecture);
        self.rows(summary, |function, range| match function.kind {
            KnownFunctionKind::EntryPoint => range.push(function.start.saturating_add(entered), root),
            KnownFunctionKind::Root | KnownFunctionKind::CoroutineStart => range.set_only(root),
            KnownFunctionKind::HandOver(rule) => range.set_only(entries.intern(Entry::Rule(rule))),
            KnownFunctionKind::SignalReturn | KnownFunctionKind::Clone => {}
        })
    }

    /// The rows of functions that are understood by their code; they apply where no other source has any.
    pub(crate) fn by_code<'data, R: ReadRef<'data>>(
        &self,
        file: &File<'data, R>,
        code: &CodeRanges,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        let architecture = code.architecture();
        let signal_frame = entries.intern(Entry::Rule(architecture.kernel_signal_frame()));
        let leaf = entries.intern(Entry::Rule(architecture.leaf()));
        let after_clone = entries.intern(Entry::Rule(Rule::AFTER_CLONE));
        let root = entries.intern(Entry::Rule(architecture.root()));
        let entered = arch::bytes_entered_by_register(architecture);
        self.rows(summary, |function, range| {
            let length = u64::from(function.end - function.start);
            let bytes = code.bytes(file, function.start, length).unwrap_or_default();
            match function.kind {
                // What follows the first instruction is overridden.
                KnownFunctionKind::EntryPoint if entered > 0 => range.set_only(leaf),
                KnownFunctionKind::SignalReturn
                    if arch::rt_sigreturn(architecture).iter().any(|call| bytes.starts_with(call)) =>
                {
                    range.set_only(signal_frame);
                }
                KnownFunctionKind::Clone => {
                    if let Some(clone) = arch::clone_parts(architecture, bytes) {
                        range.set_only(leaf);
                        range.push(function.start.saturating_add(clone.returns), after_clone);
                        range.push(function.start.saturating_add(clone.child), root);
                        range.push(function.start.saturating_add(clone.parent), leaf);
                    }
                }
                KnownFunctionKind::SignalReturn
                | KnownFunctionKind::EntryPoint
                | KnownFunctionKind::Root
                | KnownFunctionKind::CoroutineStart
                | KnownFunctionKind::HandOver(_) => {}
            }
        })
    }

    fn rows(
        &self,
        summary: &mut Summary,
        mut fill: impl FnMut(&KnownFunction, &mut RangeRows<'_>),
    ) -> RowBuffer {
        // There are few of them.
        let mut ranges = RangeStack::new(Memory::UNSHARED);
        for function in &self.functions {
            let start = function.start.saturating_sub(u32::from(function.kind.is_returned_to()));
            let mut range = ranges.range((start, function.end));
            fill(function, &mut range);
            if !range.is_empty() {
                Summary::count(&mut summary.functions, RowSource::KnownFunction);
                ranges.open(range);
            }
        }
        ranges.finish()
    }
}

/// Bytes of code up to the first instruction after which execution never continues, if the assumed size contains one.
fn straight_length<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    at: u64,
) -> Option<u32> {
    let start = code.offset(at)?;
    arch::straight_length(code.architecture(), code.bytes(file, start, MAX_UNSIZED_BYTES)?)
}

/// The address that `makecontext` passes on and whose code begins like a coroutine's start.
fn coroutine_start<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    make_context: u64,
    size: u64,
) -> Option<u64> {
    addresses_passed(file, code, make_context, size)?.find(|target| {
        let start = code.offset(*target);
        let begins = start.and_then(|start| code.bytes(file, start, COROUTINE_START.len() as u64));
        begins == Some(&COROUTINE_START[..])
    })
}

/// The first of its own parts whose address `make_fcontext` takes. Newer versions take two: the part that a coroutine
/// begins with, and right after it the part that it returns to.
fn fcontext_start<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    make_fcontext: u64,
    size: u64,
) -> Option<(u64, KnownFunctionKind)> {
    let function = make_fcontext..make_fcontext.checked_add(size)?;
    let parts = addresses_passed(file, code, make_fcontext, size)?.filter(|place| function.contains(place));
    let (mut first, mut count) = (u64::MAX, 0);
    parts.for_each(|part| (first, count) = (first.min(part), count + 1));
    match count {
        0 => None,
        1 => Some((first, KnownFunctionKind::CoroutineStart)),
        _ => Some((first, KnownFunctionKind::Root)),
    }
}

/// The addresses that the code of a function takes relative to its own location.
fn addresses_passed<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    function: u64,
    size: u64,
) -> Option<impl Iterator<Item = u64>> {
    let bytes = code.bytes(file, code.offset(function)?, size.min(MAX_MAKE_CONTEXT_BYTES))?;
    Some(arch::addresses_taken(code.architecture(), function, bytes))
}

/// Whether a function with this name is never called.
pub(crate) fn is_never_called(name: &[u8]) -> bool {
    KnownFunctionKind::by_name(name).is_some_and(KnownFunctionKind::is_returned_to)
}

impl KnownFunctionKind {
    fn by_name(name: &[u8]) -> Option<Self> {
        let kinds: [(&[&[u8]], Self); 4] = [
            (&ROOTS, Self::Root),
            (&COROUTINE_STARTS, Self::CoroutineStart),
            (&SIGNAL_RETURNS, Self::SignalReturn),
            (&CLONES, Self::Clone),
        ];
        kinds.into_iter().find_map(|(names, kind)| names.contains(&name).then_some(kind))
    }

    /// Whether it is never called but its first byte is a return address, so that a walk looks up the byte before it.
    fn is_returned_to(self) -> bool {
        matches!(self, Self::CoroutineStart | Self::SignalReturn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_without_size_ends_with_the_range_that_another_source_states() {
        let end_assumedat = |start| KnownFunctions {
            functions: vec![KnownFunction {
                start,
                end: start + 64,
                end_assumed: true,
                kind: KnownFunctionKind::Root,
            }],
            ..KnownFunctions::default()
        };
        let end_after = |ranges: &[(u32, u32)]| {
            let mut known = end_assumedat(100);
            ranges.iter().for_each(|range| known.clip_to(*range));
            known.functions[0].end
        };
        assert_eq!(end_after(&[(0, 50), (90, 100)]), 164);
        assert_eq!(end_after(&[(100, 200)]), 200, "it is that function");
        assert_eq!(end_after(&[(100, 200), (150, 160)]), 200);
        assert_eq!(end_after(&[(150, 160), (130, 140)]), 130, "another one follows");
        assert_eq!(end_after(&[(90, 120)]), 120, "it is the last part of another one");
    }
}
