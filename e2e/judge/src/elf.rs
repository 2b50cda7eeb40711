//! What a binary says of itself: which function an address belongs to, and where stacks start.
//!
//! This is the tests' own source of truth. It is read with `object` and `gimli` straight from the file and
//! shares no code with the profiler, which it judges.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, RegisterRule, UnwindContext, UnwindSection as _, UnwindTableRow, Vendor, X86_64,
};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::elf::PF_X;
use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags,
    SymbolKind,
};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The shortest call is of a register, the longest of memory at an index, with a prefix.
const CALL_BYTES_MIN: usize = 2;
const CALL_BYTES_MAX: usize = 8;

/// How `__start_context` begins, which functions of glibc's makecontext(3) return to, and which no symbol names:
/// `mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi`.
const START_CONTEXT: [u8; 10] = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff];

/// rt_sigreturn(2): `mov $15, %rax; syscall`, in both of its forms, and arm64's `mov x8, #139; svc #0`.
pub const SIGRETURN: [&[u8]; 3] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
    &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
];
const SIGRETURN_BYTES_MAX: u64 = 9;

/// `mov $56, %eax; syscall` and `mov $435, %eax; syscall`: clone(2) and clone3(2).
const CLONES: [[u8; 7]; 2] = [[0xb8, 56, 0, 0, 0, 0x0f, 0x05], [0xb8, 0xb3, 1, 0, 0, 0x0f, 0x05]];
/// From the end of the system call to the jump that parts a new thread from its parent.
const AFTER_CLONE_BYTES_MAX: u64 = 8;

/// How far the entry code reaches that states no range of its own (ld.so's `_start` has no unwind data).
const ENTRY_BYTES: u64 = 64;

/// Functions below which a goroutine or a thread of Go's runtime has no caller. `mcall` and `morestack` leave the goroutine
/// and start again at the top of the thread's own stack: Go's own tracebacks end there, too. A new thread begins within
/// `clone`, and the entry point jumps to `_rt0_amd64`.
const GO_STARTS: [&str; 13] = [
    "_rt0_amd64",
    "runtime.clone",
    "runtime.clone.abi0",
    "runtime.morestack",
    "runtime.morestack.abi0",
    "runtime.mcall",
    "runtime.mcall.abi0",
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mstart",
    "runtime.mstart.abi0",
    "runtime.rt0_go",
    "runtime.rt0_go.abi0",
];

/// One binary. Addresses are as its own headers state them.
#[derive(Debug)]
pub struct Elf {
    segments: Vec<Segment>,
    functions: BTreeMap<u64, Function>,
    eh_frame: Vec<u8>,
    /// Whose instructions there are in it, besides those of DWARF.
    vendor: Vendor,
    bases: BaseAddresses,
    /// Where the frame descriptions lie in `eh_frame`: by the start of what they describe, with its end.
    descriptions: BTreeMap<u64, (u64, EhFrameOffset)>,
    entry: u64,
    start_cache: RefCell<HashMap<u64, bool>>,
}

#[derive(Debug)]
struct Segment {
    file_offset: u64,
    file_size: u64,
    svma: u64,
    /// Empty unless it is executable.
    code: Vec<u8>,
}

#[derive(Debug, Default)]
struct Function {
    size: u64,
    names: Vec<String>,
}

impl Elf {
    /// Reads a binary.
    ///
    /// # Errors
    /// When the file cannot be read or is no ELF.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = object::File::parse(&*bytes).with_context(|| format!("{} is no ELF", path.display()))?;

        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0 {
                let function = functions.entry(symbol.address()).or_default();
                function.size = function.size.max(symbol.size());
                function.names.push(symbol.name().unwrap_or_default().to_owned());
            }
        }
        let segments = file.segments().map(|segment| {
            let (file_offset, file_size) = segment.file_range();
            let is_code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
            let code = if is_code { segment.data().unwrap_or_default().to_vec() } else { Vec::new() };
            Segment { file_offset, file_size, svma: segment.address(), code }
        });
        let section = |name| file.section_by_name(name);
        let mut bases = BaseAddresses::default();
        if let Some(text) = section(".text") {
            bases = bases.set_text(text.address());
        }
        let mut eh_frame = Vec::new();
        if let Some(found) = section(".eh_frame") {
            bases = bases.set_eh_frame(found.address());
            eh_frame = found.data().context(".eh_frame lies outside of the file")?.to_vec();
        }
        let vendor = match file.architecture() {
            Architecture::Aarch64 => Vendor::AArch64,
            _ => Vendor::Default,
        };
        let descriptions = descriptions(&eh_frame, vendor, &bases);
        Ok(Self {
            segments: segments.collect(),
            functions,
            eh_frame,
            vendor,
            bases,
            descriptions,
            entry: file.entry(),
            start_cache: RefCell::default(),
        })
    }

    /// The stated address of a byte of the file.
    #[must_use]
    pub fn svma_of_file_offset(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = offset.checked_sub(segment.file_offset)?;
            (within < segment.file_size).then_some(segment.svma + within)
        })
    }

    /// The place in the file of a stated address.
    #[must_use]
    pub fn file_offset_of_svma(&self, svma: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = svma.checked_sub(segment.svma)?;
            (within < segment.file_size).then_some(segment.file_offset + within)
        })
    }

    /// All names of the function whose symbol covers `svma`; empty where there is none.
    #[must_use]
    pub fn names_at(&self, svma: u64) -> &[String] {
        match self.functions.range(..=svma).next_back() {
            Some((start, function)) if svma - start < function.size => &function.names,
            _ => &[],
        }
    }

    /// Whether a function starts at `svma`, by its symbol.
    #[must_use]
    pub fn is_function_start(&self, svma: u64) -> bool {
        self.functions.contains_key(&svma)
    }

    /// The functions of which a symbol tells the range: start, size and one name.
    pub fn functions(&self) -> impl Iterator<Item = (u64, u64, &str)> {
        self.functions.iter().map(|(start, function)| {
            (*start, function.size, function.names.first().map_or("", String::as_str))
        })
    }

    /// Whether a stack starts in the code at `svma`: the program's entry, or a place whose unwind data says
    /// that there is no caller (`_start`, `clone`, `clone3`), or the bottom of a goroutine or of Go's threads. A new thread
    /// is first met just behind the system call that made it.
    #[must_use]
    pub fn is_start(&self, svma: u64) -> bool {
        if let Some(known) = self.start_cache.borrow().get(&svma) {
            return *known;
        }
        let is_start = self.find_start(svma);
        self.start_cache.borrow_mut().insert(svma, is_start);
        is_start
    }

    fn find_start(&self, svma: u64) -> bool {
        let at_entry = svma.checked_sub(self.entry).is_some_and(|within| within < ENTRY_BYTES);
        at_entry
            || self.code_from(svma).starts_with(&START_CONTEXT)
            || self.follows_clone(svma)
            || self.names_at(svma).iter().any(|name| GO_STARTS.contains(&name.as_str()))
            || self.rule_at(svma).is_some_and(|rule| rule.return_address == ReturnAddress::None)
    }

    fn follows_clone(&self, svma: u64) -> bool {
        (0..AFTER_CLONE_BYTES_MAX).any(|distance| {
            let call = svma.saturating_sub(distance + CLONES[0].len() as u64);
            CLONES.iter().any(|clone| self.code_from(call).starts_with(clone))
        })
    }

    /// What the unwind data say at `svma`, in the form that covers nearly every row.
    #[must_use]
    pub fn rule_at(&self, svma: u64) -> Option<Rule> {
        let description = self.description_at(svma)?;
        let (section, mut context) = (section(&self.eh_frame, self.vendor), UnwindContext::new());
        let row = description.unwind_info_for_address(&section, &self.bases, &mut context, svma).ok()?;
        Some(Rule::from_row(row))
    }

    /// Whether `svma` is in, or just before or behind, the code that signal handlers return to, whose frame is the
    /// kernel's: by its unwind data, or, as Go has none, by what it does.
    #[must_use]
    pub fn is_signal_frame(&self, svma: u64) -> bool {
        let is_call = |start: u64| {
            let code = self.code_from(start);
            SIGRETURN.iter().any(|call| code.starts_with(call))
        };
        self.description_at(svma).is_some_and(|description| description.is_signal_trampoline())
            || (svma.saturating_sub(SIGRETURN_BYTES_MAX)..=svma + 1).any(is_call)
    }

    /// Whether a call ends at `svma`, so that it can be a return address.
    #[must_use]
    pub fn follows_call(&self, svma: u64) -> bool {
        let Some((code, start)) = self.code_at(svma.wrapping_sub(1)) else { return false };
        let end = start + 1;
        (CALL_BYTES_MIN..=CALL_BYTES_MAX.min(end)).any(|bytes| {
            let call = code.get(end - bytes..end).unwrap_or_default();
            let instruction = Decoder::new(64, call, DecoderOptions::NONE).decode();
            instruction.mnemonic() == Mnemonic::Call && instruction.len() == bytes
        })
    }

    /// The code from `svma` to the end of its segment; empty where there is none.
    fn code_from(&self, svma: u64) -> &[u8] {
        self.code_at(svma).and_then(|(code, within)| code.get(within..)).unwrap_or_default()
    }

    /// The segment of code that holds `svma`, and where in it that is.
    fn code_at(&self, svma: u64) -> Option<(&[u8], usize)> {
        self.segments.iter().find_map(|segment| {
            let within = usize::try_from(svma.checked_sub(segment.svma)?).ok()?;
            (within < segment.code.len()).then_some((&*segment.code, within))
        })
    }

    /// Which bytes of `.eh_frame` describe the function at `svma`.
    #[must_use]
    pub fn description_bytes(&self, svma: u64) -> Option<Range<usize>> {
        let description = self.description_at(svma)?;
        Some(description.offset()..description.offset() + description.entry_len())
    }

    fn description_at(&self, svma: u64) -> Option<FrameDescriptionEntry<Reader<'_>>> {
        let (_, (end, offset)) = self.descriptions.range(..=svma).next_back()?;
        let section = section(&self.eh_frame, self.vendor);
        (svma < *end)
            .then(|| section.fde_from_offset(&self.bases, *offset, EhFrame::cie_from_offset).ok())
            .flatten()
    }
}

fn section(eh_frame: &[u8], vendor: Vendor) -> EhFrame<Reader<'_>> {
    let mut section = EhFrame::new(eh_frame, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(vendor);
    section
}

/// All frame descriptions up to the first that cannot be read.
fn descriptions(
    eh_frame: &[u8],
    vendor: Vendor,
    bases: &BaseAddresses,
) -> BTreeMap<u64, (u64, EhFrameOffset)> {
    let section = section(eh_frame, vendor);
    let mut entries = section.entries(bases);
    let mut descriptions = BTreeMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(description) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let start = description.initial_address();
        let end = start.saturating_add(description.len());
        descriptions.insert(start, (end, EhFrameOffset(description.offset())));
    }
    descriptions
}

/// One row of unwind data on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The canonical frame address, if it is a register plus a number.
    pub cfa: Option<(Base, i64)>,
    /// Where the caller's frame pointer is.
    pub frame_pointer: FramePointer,
    /// Where the return address is.
    pub return_address: ReturnAddress,
}

/// What a CFA is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// `rsp`.
    StackPointer,
    /// `rbp`.
    FramePointer,
}

/// The caller's `rbp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FramePointer {
    /// As it is now.
    Same,
    /// In memory at the CFA plus this.
    AtCfa(i64),
    /// Anything else.
    Other,
}

/// The return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReturnAddress {
    /// In memory at the CFA plus this.
    AtCfa(i64),
    /// There is no caller.
    None,
    /// Anything else.
    Other,
}

impl Rule {
    fn from_row(row: &UnwindTableRow<usize>) -> Self {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => {
                Some((Base::StackPointer, *offset))
            }
            CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => {
                Some((Base::FramePointer, *offset))
            }
            _ => None,
        };
        let frame_pointer = match row.register(X86_64::RBP) {
            None | Some(RegisterRule::SameValue) => FramePointer::Same,
            Some(RegisterRule::Offset(offset)) => FramePointer::AtCfa(offset),
            Some(_) => FramePointer::Other,
        };
        let return_address = match row.register(X86_64::RA) {
            Some(RegisterRule::Offset(offset)) => ReturnAddress::AtCfa(offset),
            Some(RegisterRule::Undefined) => ReturnAddress::None,
            _ => ReturnAddress::Other,
        };
        Self { cfa, frame_pointer, return_address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidewinder_e2e_support::workload::LADDER;

    #[test]
    fn functions_and_the_start_of_a_program_are_found() -> Result<()> {
        let elf = Elf::read(&LADDER.compiled()?)?;
        let (burn, size, _) = elf.functions().find(|(.., name)| *name == "burn").context("no burn")?;
        assert_eq!(elf.names_at(burn + size - 1), ["burn"]);
        assert!(elf.is_start(elf.entry));
        assert!(!elf.is_start(burn));
        assert_eq!(elf.rule_at(burn).map(|rule| rule.cfa), Some(Some((Base::StackPointer, 8))));
        Ok(())
    }

    #[test]
    fn only_places_behind_calls_can_be_returned_to() -> Result<()> {
        let elf = Elf::read(&LADDER.compiled()?)?;
        let (main, size, _) = elf.functions().find(|(.., name)| *name == "main").context("no main")?;
        let places = (main..main + size).filter(|svma| elf.follows_call(*svma)).count();
        assert!((3..30).contains(&places), "{places} of {size}");
        assert!(!elf.follows_call(main), "a function's start");
        assert!(!elf.follows_call(1), "no code at all");
        Ok(())
    }
}
