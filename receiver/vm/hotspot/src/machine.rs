//! Where the virtual machine of a process has its code, and the layout of its objects.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::tls::ElfFile;
use sidewinder_process::{ExecutableMapping, ForeignMemory, ReadAt};
use sidewinder_vm_runtime::chunks::Chunks;

use super::layout::{BlobLayout, DebugLayout, MethodLayout, NAMES};
use super::named_fields::{MachineError, NamedFields};
use super::structs::{Structs, Tables};
use crate::arch::{InterpretedFrame, interpreted_frame};

/// Parts of the code cache. HotSpot has one or three.
const HEAPS_MAX: usize = 4;
/// Options that are looked at. There are up to 2,000.
const OPTIONS_MAX: u64 = 8192;

/// An ELF file that contains HotSpot: `libjvm.so`.
#[derive(Clone, Debug)]
pub struct JvmLibrary {
    elf: ElfFile,
    tables: Tables,
}

/// A virtual machine of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualMachine {
    /// Its version: that of the JDK, and the update. For example 17 and 15.
    pub version: (u8, u8),
    /// The parts of the code cache.
    pub heaps: Vec<CodeHeap>,
    /// The size of a segment of a heap, as a power of two.
    pub segment_shift: u8,
    /// The code of the interpreter, with its length in bytes.
    pub interpreter: (Avma, u32),
    /// Where methods that native code has called return to.
    pub call_stub_return: Avma,
    /// The layout of blobs of code.
    pub blob: BlobLayout,
    /// The layout of methods.
    pub method: MethodLayout,
    /// The layout of debug information, if it is known.
    pub debug: Option<DebugLayout>,
    /// Whether there is debug information for each instruction (`-XX:+DebugNonSafepoints`), not only where a thread may stop.
    pub has_debug_everywhere: bool,
}

/// A part of the code cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeHeap {
    /// Its start.
    pub start: Avma,
    /// What is reserved for it, in bytes.
    pub bytes: u64,
    /// The segment map: a byte for each of its segments.
    pub segments: Avma,
}

impl VirtualMachine {
    /// How its interpreter's frames are laid out: its tables don't say so.
    #[must_use]
    pub fn interpreted_frame(&self) -> InterpretedFrame {
        interpreted_frame(self.version.0)
    }
}

impl JvmLibrary {
    /// Reads a file; `None` if it does not contain HotSpot.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(elf) = ElfFile::read(file)? else { return Ok(None) };
        Ok(Tables::read(file, &elf)?.map(|tables| Self { elf, tables }))
    }

    /// The load bias of this file, given one of its mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.elf.bias_of(mapping)
    }

    /// The virtual machine of a process in which this file is loaded with the given bias.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn locate(&self, bias: u64, memory: &impl ForeignMemory) -> Result<VirtualMachine, MachineError> {
        let structs = Structs::read(&self.tables, bias, memory, &NAMES)?;
        NamedFields(&structs).machine(memory)
    }
}

impl NamedFields<'_> {
    fn machine(&self, memory: &impl ForeignMemory) -> Result<VirtualMachine, MachineError> {
        let queue = nonnull(memory.word(self.variable("AbstractInterpreter::_code")?)?)?;
        let interpreter_bytes = u32_at(memory, at(queue, self.offset("StubQueue::_buffer_limit")?)?)?;
        let interpreter = nonnull(memory.word(at(queue, self.offset("StubQueue::_stub_buffer")?)?)?)?;
        let call_stub = memory.word(self.variable("StubRoutines::_call_stub_return_address")?)?;
        let (heaps, segment_shift) = self.heaps(memory)?;
        Ok(VirtualMachine {
            version: self.version(memory)?,
            heaps,
            segment_shift,
            interpreter: (interpreter, interpreter_bytes),
            call_stub_return: nonnull(call_stub)?,
            blob: self.blob()?,
            method: self.method()?,
            debug: self.debug(),
            has_debug_everywhere: self.option(memory, b"DebugNonSafepoints").unwrap_or(false),
        })
    }

    /// That of the JDK. Before 9, the virtual machine had another one.
    fn version(&self, memory: &impl ForeignMemory) -> Result<(u8, u8), MachineError> {
        let number = |name| Ok::<u8, MachineError>(u32_at(memory, self.variable(name)?)? as u8);
        let update = number("Abstract_VM_Version::_vm_security_version").unwrap_or(0);
        let Ok(jdk) = self.variable("JDK_Version::_current") else {
            return Ok((number("Abstract_VM_Version::_vm_major_version")?, update));
        };
        Ok((u32_at(memory, at(jdk, self.offset("JDK_Version::_major")?)?)? as u8, update))
    }

    fn heaps(&self, memory: &impl ForeignMemory) -> Result<(Vec<CodeHeap>, u8), MachineError> {
        let (mut heaps, mut segment_shift) = (Vec::new(), None);
        for heap in self.heap_addresses(memory)? {
            let memory_at = at(heap, self.offset("CodeHeap::_memory")?)?;
            let segments_at = at(heap, self.offset("CodeHeap::_segmap")?)?;
            let word = |space, name| Ok::<u64, MachineError>(memory.word(at(space, self.offset(name)?)?)?);
            let start = nonnull(word(memory_at, "VirtualSpace::_low_boundary")?)?;
            let end = Avma(word(memory_at, "VirtualSpace::_high_boundary")?);
            let bytes = end.checked_offset_from(start).ok_or(MachineError::NotYet)?;
            let segments = nonnull(word(segments_at, "VirtualSpace::_low")?)?;
            let shift = u32_at(memory, at(heap, self.offset("CodeHeap::_log2_segment_size")?)?)?;
            let shift = u8::try_from(shift).ok().filter(|shift| (3..=20).contains(shift));
            if segment_shift.is_some_and(|known| Some(known) != shift) || shift.is_none() {
                return Err(MachineError::Missing("CodeHeap::_log2_segment_size"));
            }
            segment_shift = shift;
            heaps.push(CodeHeap { start, bytes, segments });
        }
        segment_shift.map(|shift| (heaps, shift)).ok_or(MachineError::NotYet)
    }

    /// The heaps of the code cache: before 9, it has one.
    fn heap_addresses(&self, memory: &impl ForeignMemory) -> Result<Vec<Avma>, MachineError> {
        if let Ok(heap) = self.variable("CodeCache::_heap") {
            return Ok(vec![nonnull(memory.word(heap)?)?]);
        }
        let array = nonnull(memory.word(self.variable("CodeCache::_heaps")?)?)?;
        let length = self.either("GrowableArrayBase::_len", "GenericGrowableArray::_len")?;
        let count = u32_at(memory, at(array, length)?)? as usize;
        let data = nonnull(memory.word(at(array, self.offset("GrowableArray<int>::_data")?)?)?)?;
        if count == 0 {
            return Err(MachineError::NotYet);
        }
        (0..count.min(HEAPS_MAX) as u16).map(|number| nonnull(memory.word(at(data, number * 8)?)?)).collect()
    }

    /// The value of an option of the type `bool`.
    fn option(&self, memory: &impl ForeignMemory, wanted: &[u8]) -> Result<bool, MachineError> {
        // Before 11, the type had another name.
        let is_new = self.0.field("JVMFlag::flags").is_some();
        let [flags, count, name, value, size] = if is_new {
            ["JVMFlag::flags", "JVMFlag::numFlags", "JVMFlag::_name", "JVMFlag::_addr", "JVMFlag"]
        } else {
            ["Flag::flags", "Flag::numFlags", "Flag::_name", "Flag::_addr", "Flag"]
        };
        let (name, value, size) = (self.offset(name)?, self.offset(value)?, u64::from(self.size(size)?));
        let memory = Chunks::new(memory);
        let first = nonnull(memory.word(self.variable(flags)?)?)?;
        let count = memory.word(self.variable(count)?)?.min(OPTIONS_MAX);
        let missing = || MachineError::Missing("the option");
        let mut text = vec![0; wanted.len() + 1];
        for number in 0..count {
            let flag = first.checked_add(number * size).ok_or_else(missing)?;
            let Ok(name) = nonnull(memory.word(at(flag, name)?)?) else { continue };
            if memory.read_exact(name, &mut text).is_ok() && text.strip_suffix(&[0]) == Some(wanted) {
                let mut on = [0];
                memory.read_exact(nonnull(memory.word(at(flag, value)?)?)?, &mut on)?;
                return Ok(on != [0]);
            }
        }
        Err(missing())
    }
}

/// The address of a field.
pub(super) fn at(object: Avma, offset: u16) -> Result<Avma, io::Error> {
    object.checked_add(offset.into()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn u32_at(memory: &impl ForeignMemory, at: Avma) -> io::Result<u32> {
    let mut bytes = [0; 4];
    memory.read_exact(at, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn nonnull(address: u64) -> Result<Avma, MachineError> {
    if address == 0 { Err(MachineError::NotYet) } else { Ok(Avma(address)) }
}
