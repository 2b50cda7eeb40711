//! The debug information of compiled methods: which methods the compiler has put into which, and where in their bytecode an
//! instruction is.
//!
//! A `PcDesc` is the state at an instruction: at each at which a thread may stop, which calls are, and at others only if the
//! virtual machine was started with `DebugNonSafepoints`. It refers to a scope: a method, the offset in its bytecode, and
//! its caller's scope (`pcDesc.hpp`, `scopeDesc.cpp`, `debugInfoRec.cpp`).

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::layout::{DebugLayout, DebugPlace};
use super::lines::Numbers;
use super::object::{pointer, u32_field};

/// Scopes of one instruction that are read. HotSpot puts methods into each other up to a depth of some 25.
pub(super) const SCOPES_MAX: usize = 64;
/// The largest table of `PcDesc`s that is searched, in bytes, and the largest scopes and metadata.
const SECTION_BYTES_MAX: u64 = 64 << 20;
/// A `PcDesc`: the offset of the instruction, that of the scope, that of objects, and flags.
const PC_DESC_BYTES: u64 = 16;
/// The flag of an instruction whose bytecode is executed again by the interpreter (`PCDESC_reexecute`).
const REEXECUTE: u32 = 1;
/// A scope is three numbers of at most 5 bytes.
const SCOPE_BYTES_MAX: u64 = 15;
/// The scope of a caller that there is none of.
const NO_SCOPE: u32 = 0;

/// A method at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MethodScope {
    /// The address of the `Method`.
    pub(super) method: Avma,
    /// The offset in its bytecode; negative before the first one.
    pub(super) bci: i32,
}

/// What the debug information says of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PcDesc {
    /// Where it is in the code: for a call, where that returns to. Before the first and behind the last are ones that are no
    /// instruction's.
    offset: i32,
    /// The offset of its scope.
    scope: u32,
    /// Whether the interpreter has to execute its bytecode. So it is at calls by which compiled code is left.
    pub(super) is_reexecuted: bool,
}

impl PcDesc {
    pub(super) fn is_at(self, offset: u32) -> bool {
        i64::from(self.offset) == i64::from(offset)
    }
}

/// Where the parts of a method's debug information are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MethodDebugInfo {
    pcs: DebugInfoRange,
    scopes: DebugInfoRange,
    /// Pointers; the first is number 1.
    metadata: Avma,
    /// The version of the JDK, on which the form of numbers depends.
    version: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DebugInfoRange {
    start: Avma,
    bytes: u64,
}

impl DebugInfoRange {
    fn new(start: Avma, end: Avma) -> Result<Self, FunctionError> {
        let bytes = end.checked_offset_from(start).filter(|bytes| *bytes <= SECTION_BYTES_MAX);
        bytes.map(|bytes| Self { start, bytes }).ok_or(FunctionError::Malformed("a section that is too long"))
    }
}

impl MethodDebugInfo {
    /// That of the blob at an address, of which `header` is the start.
    pub(super) fn new(
        layout: &DebugLayout,
        version: u8,
        blob: Avma,
        header: &[u8],
    ) -> Result<Self, FunctionError> {
        let number = |at| u32_field(header, at).map(u64::from);
        let add =
            |start: Avma, offset| start.checked_add(offset).ok_or(FunctionError::Malformed("not an address"));
        let (pcs, scopes, metadata) = match layout.place {
            DebugPlace::Blob { pcs_end, scopes, scopes_is_pointer, metadata } => {
                let pcs_start = add(blob, number(layout.pcs)?)?;
                let scopes =
                    if scopes_is_pointer { pointer(header, scopes)? } else { add(blob, number(scopes)?)? };
                let pcs = DebugInfoRange::new(pcs_start, add(blob, number(pcs_end)?)?)?;
                (pcs, DebugInfoRange::new(scopes, pcs_start)?, add(blob, number(metadata)?)?)
            }
            DebugPlace::Own { memory, bytes, scopes, mutable, relocation_bytes } => {
                let start = pointer(header, memory)?;
                let scopes = add(start, number(scopes)?)?;
                let pcs = DebugInfoRange::new(add(start, number(layout.pcs)?)?, scopes)?;
                let metadata = add(pointer(header, mutable)?, number(relocation_bytes)?)?;
                (pcs, DebugInfoRange::new(scopes, add(start, number(bytes)?)?)?, metadata)
            }
        };
        Ok(Self { pcs, scopes, metadata, version })
    }

    /// The scopes of the call that returns to an offset in the code, the innermost first; empty if there is no debug
    /// information for it.
    pub(super) fn at_call(
        &self,
        memory: &impl ForeignMemory,
        offset: u32,
    ) -> Result<Vec<MethodScope>, FunctionError> {
        match self.first_from(memory, offset)? {
            Some(found) if found.is_at(offset) => self.scopes_of(memory, found),
            _ => Ok(Vec::new()),
        }
    }

    /// The scopes of the last instruction before an offset in the code that has debug information, the innermost first.
    pub(super) fn before(
        &self,
        memory: &impl ForeignMemory,
        offset: u32,
    ) -> Result<Vec<MethodScope>, FunctionError> {
        let number = self.lower_bound(memory, offset)?.checked_sub(1);
        let found = number.map_or(Ok(None), |number| self.pc_desc(memory, number))?;
        found.map_or(Ok(Vec::new()), |found| self.scopes_of(memory, found))
    }

    /// The first `PcDesc` whose offset is not lower.
    pub(super) fn first_from(
        &self,
        memory: &impl ForeignMemory,
        offset: u32,
    ) -> Result<Option<PcDesc>, FunctionError> {
        self.pc_desc(memory, self.lower_bound(memory, offset)?)
    }

    /// The number of the first `PcDesc` whose offset is not lower: they are sorted.
    fn lower_bound(&self, memory: &impl ForeignMemory, offset: u32) -> Result<u64, FunctionError> {
        let (mut low, mut high) = (0, self.pcs.bytes / PC_DESC_BYTES);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.pc_desc(memory, middle)? {
                Some(found) if i64::from(found.offset) < i64::from(offset) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// A `PcDesc` by its number; `None` behind the last one.
    fn pc_desc(&self, memory: &impl ForeignMemory, number: u64) -> Result<Option<PcDesc>, FunctionError> {
        if number >= self.pcs.bytes / PC_DESC_BYTES {
            return Ok(None);
        }
        let mut bytes = [0; PC_DESC_BYTES as usize];
        memory.read_exact(Avma(self.pcs.start.0 + number * PC_DESC_BYTES), &mut bytes)?;
        let (fields, _) = bytes.as_chunks();
        let [offset, scope, _, flags] =
            [0, 1, 2, 3].map(|number| fields.get(number).copied().unwrap_or([0; 4]));
        Ok(Some(PcDesc {
            offset: i32::from_le_bytes(offset),
            scope: u32::from_le_bytes(scope),
            is_reexecuted: u32::from_le_bytes(flags) & REEXECUTE != 0,
        }))
    }

    /// The scope of a `PcDesc` and its callers', the innermost first. An offset that leads to no scope ends the chain, as the sentinels at both ends of the table do.
    pub(super) fn scopes_of(
        &self,
        memory: &impl ForeignMemory,
        pc_desc: PcDesc,
    ) -> Result<Vec<MethodScope>, FunctionError> {
        let (mut scopes, mut offset) = (Vec::new(), pc_desc.scope);
        while offset != NO_SCOPE {
            let left = self.scopes.bytes.saturating_sub(offset.into()).min(SCOPE_BYTES_MAX);
            let mut bytes = [0; SCOPE_BYTES_MAX as usize];
            let bytes = bytes.get_mut(..left as usize).unwrap_or_default();
            memory.read_exact(Avma(self.scopes.start.0 + u64::from(offset)), bytes)?;
            let mut numbers = Numbers::new(bytes, self.version);
            let (Some(sender), Some(method), Some(bci)) = (numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(FunctionError::Malformed("a scope behind the last one"));
            };
            let method = u64::from(method).checked_sub(1).filter(|number| *number < SECTION_BYTES_MAX / 8);
            let method = method.and_then(|number| self.metadata.checked_add(8 * number));
            let method =
                Avma(memory.word(method.ok_or(FunctionError::Malformed("a scope without a method"))?)?);
            scopes.push(MethodScope { method, bci: bci.cast_signed().wrapping_sub(1) });
            if scopes.len() > SCOPES_MAX {
                return Err(FunctionError::Malformed("scopes that never end"));
            }
            offset = sender;
        }
        Ok(scopes)
    }
}
