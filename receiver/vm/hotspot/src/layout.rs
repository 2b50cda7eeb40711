//! The layout of HotSpot's objects, by the names of their fields.

use super::named_fields::{MachineError, NamedFields};
use super::structs::Names;

pub(super) const NAMES: Names = Names {
    fields: &[
        "Abstract_VM_Version::_vm_major_version",
        "Abstract_VM_Version::_vm_security_version",
        "JDK_Version::_current",
        "JDK_Version::_major",
        "CodeCache::_heaps",
        "CodeCache::_heap",
        "GrowableArrayBase::_len",
        "GenericGrowableArray::_len",
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
        "HeapBlock::Header::_used",
        "CodeBlob::_name",
        "CodeBlob::_size",
        "CodeBlob::_frame_size",
        "CodeBlob::_frame_complete_offset",
        "CodeBlob::_code_begin",
        "CodeBlob::_code_offset",
        "CompiledMethod::_method",
        "CompiledMethod::_deopt_handler_begin",
        "CompiledMethod::_deopt_mh_handler_begin",
        "CompiledMethod::_scopes_data_begin",
        "CodeBlob::_mutable_data",
        "CodeBlob::_relocation_size",
        "nmethod::_method",
        "nmethod::_compile_id",
        "nmethod::_comp_level",
        "nmethod::_orig_pc_offset",
        "nmethod::_deopt_handler_offset",
        "nmethod::_deopt_handler_entry_offset",
        "nmethod::_deopt_mh_handler_offset",
        "nmethod::_deoptimize_offset",
        "nmethod::_deoptimize_mh_offset",
        "nmethod::_metadata_offset",
        "nmethod::_scopes_data_offset",
        "nmethod::_scopes_pcs_offset",
        "nmethod::_dependencies_offset",
        "nmethod::_immutable_data",
        "nmethod::_immutable_data_size",
        "JVMFlag::flags",
        "JVMFlag::numFlags",
        "JVMFlag::_name",
        "JVMFlag::_addr",
        "Flag::flags",
        "Flag::numFlags",
        "Flag::_name",
        "Flag::_addr",
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
        "InstanceKlass::_source_file_name_index",
        "Klass::_name",
        "Symbol::_length",
        "Symbol::_body",
    ],
    sizes: &["HeapBlock", "ConstMethod", "ConstantPool", "JVMFlag", "Flag"],
    constants: &["ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table"],
};

/// Bytes of a blob in which its fields are.
pub(super) const BLOB_BYTES_MAX: u16 = 384;

/// Offsets of fields in a `CodeBlob` and in an `nmethod`, which is one, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobLayout {
    /// The bytes of the header before each blob.
    pub header_bytes: u8,
    /// In that header, one byte: whether the blob is in use.
    pub used: u8,
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
    /// Where a frame that is deoptimized keeps the address to which it would have returned: the offset from the stack pointer,
    /// four bytes.
    pub original_pc: u16,
}

impl BlobLayout {
    /// The bytes that an `nmethod` has at least: its identity is in these.
    pub(super) fn nmethod_bytes(&self) -> u32 {
        u32::from((self.compile_id + 4).max(self.method + 8))
    }
}

/// Offsets of the fields of an `nmethod` that lead to its debug information, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugLayout {
    /// Where it is.
    pub place: DebugPlace,
    /// Four bytes: where the table of `PcDesc`s begins.
    pub pcs: u16,
}

/// Where the debug information is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugPlace {
    /// In the blob: offsets from its start, of four bytes, unless stated otherwise.
    Blob {
        /// What follows the `PcDesc`s.
        pcs_end: u16,
        /// Where scopes begin.
        scopes: u16,
        /// Since 9, `scopes` is a pointer.
        scopes_is_pointer: bool,
        /// Pointers to methods.
        metadata: u16,
    },
    /// In memory of its own (since 23): offsets from its start.
    Own {
        /// Pointer to that.
        memory: u16,
        /// Its length, four bytes.
        bytes: u16,
        /// Scopes follow the `PcDesc`s.
        scopes: u16,
        /// Pointer to memory that begins with the relocations, which the metadata follow (since 24).
        mutable: u16,
        /// The size of the relocations, four bytes.
        relocation_bytes: u16,
    },
}

/// Offsets of fields in objects that describe a method, and sizes of these, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodLayout {
    /// In a `Method`.
    pub const_method: u16,
    /// The size of a `ConstMethod`, which the bytecode follows.
    pub const_method_bytes: u16,
    /// In a `ConstMethod`: pointer to its `ConstantPool`.
    pub constants: u16,
    /// In a `ConstMethod`: its size in words, four bytes.
    pub const_method_words: u16,
    /// In a `ConstMethod`: flags, two bytes.
    pub flags: u16,
    /// Of these, the one that says that it has a table of lines.
    pub has_lines: u16,
    /// In a `ConstMethod`: the length of the bytecode, two bytes.
    pub code_bytes: u16,
    /// In a `ConstMethod`: the number of its name in the pool, two bytes.
    pub name: u16,
    /// In a `ConstMethod`: the number of its descriptor in the pool, two bytes.
    pub signature: u16,
    /// The size of a `ConstantPool`, which its entries follow.
    pub pool_bytes: u16,
    /// In a `ConstantPool`: pointer to its class.
    pub pool_holder: u16,
    /// In a `ConstantPool`: the number of entries, four bytes.
    pub pool_length: u16,
    /// In the pool, or before 9 in the class (`InstanceKlass`).
    pub source_file: u16,
    /// Whether it is in the class.
    pub class_has_source_file: bool,
    /// In a class: pointer to its name, a `Symbol`.
    pub class_name: u16,
    /// In a `Symbol`: the length of its text, two bytes.
    pub symbol_length: u16,
    /// In a `Symbol`: its text.
    pub symbol_body: u16,
}

impl NamedFields<'_> {
    pub(super) fn blob(&self) -> Result<BlobLayout, MachineError> {
        let has_offsets = self.0.field("CodeBlob::_code_offset").is_some();
        let (first, second) = if has_offsets {
            let first = self
                .either("nmethod::_deopt_handler_offset", "nmethod::_deopt_handler_entry_offset")
                .or_else(|_| self.offset("nmethod::_deoptimize_offset"));
            (first, self.either("nmethod::_deopt_mh_handler_offset", "nmethod::_deoptimize_mh_offset"))
        } else {
            let offset = |name| self.offset(name);
            (
                offset("CompiledMethod::_deopt_handler_begin"),
                offset("CompiledMethod::_deopt_mh_handler_begin"),
            )
        };
        let frame_size = self.offset("CodeBlob::_frame_size")?;
        let frame_complete = self.offset("CodeBlob::_frame_complete_offset")?;
        let deopt = first?;
        let layout = BlobLayout {
            header_bytes: self
                .size("HeapBlock")?
                .try_into()
                .map_err(|_| MachineError::Missing("HeapBlock"))?,
            used: self
                .offset("HeapBlock::Header::_used")?
                .try_into()
                .map_err(|_| MachineError::Missing("HeapBlock::Header::_used"))?,
            name: self.offset("CodeBlob::_name")?,
            size: self.offset("CodeBlob::_size")?,
            frame_size,
            frame_complete,
            frame_complete_is_short: self.0.is_short("CodeBlob::_frame_complete_offset"),
            code: self.either("CodeBlob::_code_offset", "CodeBlob::_code_begin")?,
            method: self.either("nmethod::_method", "CompiledMethod::_method")?,
            compile_id: self.offset("nmethod::_compile_id")?,
            // Later versions have one handler.
            deopt_handlers: [deopt, second.unwrap_or(deopt)],
            has_offsets,
            original_pc: self.offset("nmethod::_orig_pc_offset")?,
        };
        let [first, second] = layout.deopt_handlers;
        let fields = [layout.name, layout.size, layout.frame_size, layout.frame_complete, layout.code];
        let fields =
            fields.into_iter().chain([layout.method, layout.compile_id, first, second, layout.original_pc]);
        match fields.max() {
            Some(last) if last <= BLOB_BYTES_MAX - 8 => Ok(layout),
            _ => Err(MachineError::Missing("field of a CodeBlob at its start")),
        }
    }

    /// `None` if the fields are not those of a known version: then methods that were put into others are not known.
    pub(super) fn debug(&self) -> Option<DebugLayout> {
        let offset = |name| self.offset(name).ok().filter(|offset| *offset <= BLOB_BYTES_MAX - 8);
        let place = if let Some(memory) = offset("nmethod::_immutable_data") {
            DebugPlace::Own {
                memory,
                bytes: offset("nmethod::_immutable_data_size")?,
                scopes: offset("nmethod::_scopes_data_offset")?,
                mutable: offset("CodeBlob::_mutable_data")?,
                relocation_bytes: offset("CodeBlob::_relocation_size")?,
            }
        } else {
            let pointer = offset("CompiledMethod::_scopes_data_begin");
            DebugPlace::Blob {
                pcs_end: offset("nmethod::_dependencies_offset")?,
                scopes: pointer.or_else(|| offset("nmethod::_scopes_data_offset"))?,
                scopes_is_pointer: pointer.is_some(),
                metadata: offset("nmethod::_metadata_offset")?,
            }
        };
        Some(DebugLayout { place, pcs: offset("nmethod::_scopes_pcs_offset")? })
    }

    pub(super) fn method(&self) -> Result<MethodLayout, MachineError> {
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
            source_file: self
                .either("ConstantPool::_source_file_name_index", "InstanceKlass::_source_file_name_index")?,
            class_has_source_file: self.0.field("ConstantPool::_source_file_name_index").is_none(),
            class_name: self.offset("Klass::_name")?,
            symbol_length: self.offset("Symbol::_length")?,
            symbol_body: self.offset("Symbol::_body")?,
        })
    }
}
