//! Where the virtual machine of a process has its code, and the layout of its objects.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::tls::ElfFile;
use sidewinder_process::{ExecutableMapping, ForeignMemory, ReadAt};
use thiserror::Error;

use super::structs::{Names, Structs, Tables};

/// Parts of the code cache. HotSpot has one or three.
const HEAPS_MAX: usize = 4;
/// Bytes of a blob in which its fields are.
pub(super) const BLOB_BYTES_MAX: u16 = 384;

const NAMES: Names = Names {
    fields: &[
        "Abstract_VM_Version::_vm_major_version",
        "Abstract_VM_Version::_vm_security_version",
        "CodeCache::_heaps",
        "GrowableArrayBase::_len",
        "GrowableArray<int>::_data",
        "CodeHeap::_memory",
        "CodeHeap::_segmap",
        "CodeHeap::_log2_segment_size",
        "VirtualSpace::_low_boundary",
        "VirtualSpace::_high_boundary",
        "VirtualSpace::_low",
        "AbstractInterpreter::_code",
        "StubQueue::_stub_buffer",
        "StubQueue::_buffer_limit",
        "StubRoutines::_call_stub_return_address",
        "CodeBlob::_name",
        "CodeBlob::_size",
        "CodeBlob::_frame_size",
        "CodeBlob::_frame_complete_offset",
        "CodeBlob::_code_begin",
        "CodeBlob::_code_offset",
        "CompiledMethod::_method",
        "CompiledMethod::_deopt_handler_begin",
        "CompiledMethod::_deopt_mh_handler_begin",
        "nmethod::_method",
        "nmethod::_compile_id",
        "nmethod::_deopt_handler_offset",
        "nmethod::_deopt_mh_handler_offset",
        "Method::_constMethod",
        "ConstMethod::_constants",
        "ConstMethod::_constMethod_size",
        "ConstMethod::_flags",
        "ConstMethod::_flags._flags",
        "ConstMethod::_code_size",
        "ConstMethod::_name_index",
        "ConstMethod::_signature_index",
        "ConstantPool::_pool_holder",
        "ConstantPool::_length",
        "ConstantPool::_source_file_name_index",
        "Klass::_name",
        "Symbol::_length",
        "Symbol::_body",
    ],
    sizes: &["HeapBlock", "ConstMethod", "ConstantPool"],
    constants: &["ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table"],
};

/// An ELF file that contains HotSpot: `libjvm.so`.
#[derive(Clone, Debug)]
pub struct Library {
    elf: ElfFile,
    tables: Tables,
}

/// Why a process's virtual machine is not known.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Its memory can't be read, or what was read is not what a virtual machine has.
    #[error("can't read the tables of the Java virtual machine")]
    Unreadable(#[from] io::Error),
    /// It is being started.
    #[error("the Java virtual machine is not initialised yet")]
    NotYet,
    /// The tables lack something, so this version is not supported.
    #[error("the tables of the Java virtual machine have no {0}")]
    Missing(&'static str),
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

/// Offsets of fields in a `CodeBlob` and in an `nmethod`, which is one, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobLayout {
    /// The bytes of the header before each blob.
    pub header_bytes: u8,
    /// Pointer to its name.
    pub name: u16,
    /// Its size in bytes.
    pub size: u16,
    /// The size of its frames, in words.
    pub frame_size: u16,
    /// From which offset in the code on it has a frame.
    pub frame_complete: u16,
    /// Whether that has two bytes instead of four.
    pub frame_complete_is_short: bool,
    /// The start of its code.
    pub code: u16,
    /// Pointer to its method.
    pub method: u16,
    /// Its number: it identifies an `nmethod`.
    pub compile_id: u16,
    /// The addresses to which it returns if it is deoptimized.
    pub deopt_handlers: [u16; 2],
    /// Whether the start of the code and these addresses are offsets of four bytes, instead of pointers.
    pub has_offsets: bool,
}

/// Offsets of fields in objects that describe a method, and sizes of these, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodLayout {
    /// In a `Method`.
    pub const_method: u16,
    /// The size of a `ConstMethod`, which the bytecode follows.
    pub const_method_bytes: u16,
    pub(super) constants: u16,
    pub(super) const_method_words: u16,
    pub(super) flags: u16,
    pub(super) has_lines: u16,
    pub(super) code_bytes: u16,
    pub(super) name: u16,
    pub(super) signature: u16,
    pub(super) pool_bytes: u16,
    pub(super) pool_holder: u16,
    pub(super) pool_length: u16,
    pub(super) source_file: u16,
    pub(super) class_name: u16,
    pub(super) symbol_length: u16,
    pub(super) symbol_body: u16,
}

impl Library {
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
        Fields(&structs).machine(memory)
    }
}

/// Fields by name.
struct Fields<'a>(&'a Structs);

impl Fields<'_> {
    fn variable(&self, name: &'static str) -> Result<Avma, MachineError> {
        self.0.field(name).map(Avma).ok_or(MachineError::Missing(name))
    }

    fn offset(&self, name: &'static str) -> Result<u16, MachineError> {
        self.0.field(name).and_then(|offset| offset.try_into().ok()).ok_or(MachineError::Missing(name))
    }

    /// The offset of a field that has another name in other versions.
    fn either(&self, name: &'static str, other: &'static str) -> Result<u16, MachineError> {
        self.offset(name).or_else(|_| self.offset(other))
    }

    fn size(&self, name: &'static str) -> Result<u16, MachineError> {
        self.0.size(name).and_then(|size| size.try_into().ok()).ok_or(MachineError::Missing(name))
    }

    fn machine(&self, memory: &impl ForeignMemory) -> Result<VirtualMachine, MachineError> {
        let version = |name| Ok::<u8, MachineError>(u32_at(memory, self.variable(name)?)? as u8);
        let queue = nonnull(memory.word(self.variable("AbstractInterpreter::_code")?)?)?;
        let interpreter_bytes = u32_at(memory, at(queue, self.offset("StubQueue::_buffer_limit")?)?)?;
        let interpreter = nonnull(memory.word(at(queue, self.offset("StubQueue::_stub_buffer")?)?)?)?;
        let call_stub = memory.word(self.variable("StubRoutines::_call_stub_return_address")?)?;
        let (heaps, segment_shift) = self.heaps(memory)?;
        Ok(VirtualMachine {
            version: (
                version("Abstract_VM_Version::_vm_major_version")?,
                version("Abstract_VM_Version::_vm_security_version")?,
            ),
            heaps,
            segment_shift,
            interpreter: (interpreter, interpreter_bytes),
            call_stub_return: nonnull(call_stub)?,
            blob: self.blob()?,
            method: self.method()?,
        })
    }

    fn heaps(&self, memory: &impl ForeignMemory) -> Result<(Vec<CodeHeap>, u8), MachineError> {
        let array = nonnull(memory.word(self.variable("CodeCache::_heaps")?)?)?;
        let count = u32_at(memory, at(array, self.offset("GrowableArrayBase::_len")?)?)? as usize;
        let data = nonnull(memory.word(at(array, self.offset("GrowableArray<int>::_data")?)?)?)?;
        if count == 0 {
            return Err(MachineError::NotYet);
        }
        let (mut heaps, mut segment_shift) = (Vec::new(), None);
        for number in 0..count.min(HEAPS_MAX) as u16 {
            let heap = nonnull(memory.word(at(data, number * 8)?)?)?;
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

    fn blob(&self) -> Result<BlobLayout, MachineError> {
        let has_offsets = self.0.field("CodeBlob::_code_offset").is_some();
        let [first, second] = if has_offsets {
            ["nmethod::_deopt_handler_offset", "nmethod::_deopt_mh_handler_offset"]
        } else {
            ["CompiledMethod::_deopt_handler_begin", "CompiledMethod::_deopt_mh_handler_begin"]
        };
        let frame_size = self.offset("CodeBlob::_frame_size")?;
        let frame_complete = self.offset("CodeBlob::_frame_complete_offset")?;
        let deopt = self.offset(first)?;
        let layout = BlobLayout {
            header_bytes: self
                .size("HeapBlock")?
                .try_into()
                .map_err(|_| MachineError::Missing("HeapBlock"))?,
            name: self.offset("CodeBlob::_name")?,
            size: self.offset("CodeBlob::_size")?,
            frame_size,
            frame_complete,
            frame_complete_is_short: self.0.is_short("CodeBlob::_frame_complete_offset"),
            code: self.either("CodeBlob::_code_offset", "CodeBlob::_code_begin")?,
            method: self.either("nmethod::_method", "CompiledMethod::_method")?,
            compile_id: self.offset("nmethod::_compile_id")?,
            // Later versions have one handler.
            deopt_handlers: [deopt, self.offset(second).unwrap_or(deopt)],
            has_offsets,
        };
        let [first, second] = layout.deopt_handlers;
        let fields = [layout.name, layout.size, layout.frame_size, layout.frame_complete, layout.code];
        let fields = fields.into_iter().chain([layout.method, layout.compile_id, first, second]);
        match fields.max() {
            Some(last) if last <= BLOB_BYTES_MAX - 8 => Ok(layout),
            _ => Err(MachineError::Missing("field of a CodeBlob at its start")),
        }
    }

    fn method(&self) -> Result<MethodLayout, MachineError> {
        let has_lines = self
            .0
            .constant("ConstMethod::_has_linenumber_table")
            .or_else(|| self.0.constant("ConstMethodFlags::_misc_has_linenumber_table"))
            .and_then(|mask| u16::try_from(mask).ok());
        Ok(MethodLayout {
            const_method: self.offset("Method::_constMethod")?,
            const_method_bytes: self.size("ConstMethod")?,
            constants: self.offset("ConstMethod::_constants")?,
            const_method_words: self.offset("ConstMethod::_constMethod_size")?,
            flags: self.either("ConstMethod::_flags", "ConstMethod::_flags._flags")?,
            has_lines: has_lines.ok_or(MachineError::Missing("ConstMethod::_has_linenumber_table"))?,
            code_bytes: self.offset("ConstMethod::_code_size")?,
            name: self.offset("ConstMethod::_name_index")?,
            signature: self.offset("ConstMethod::_signature_index")?,
            pool_bytes: self.size("ConstantPool")?,
            pool_holder: self.offset("ConstantPool::_pool_holder")?,
            pool_length: self.offset("ConstantPool::_length")?,
            source_file: self.offset("ConstantPool::_source_file_name_index")?,
            class_name: self.offset("Klass::_name")?,
            symbol_length: self.offset("Symbol::_length")?,
            symbol_body: self.offset("Symbol::_body")?,
        })
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
