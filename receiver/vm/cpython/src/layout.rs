//! The layout of the objects of a version.
//!
//! Source: `Include/cpython/{pystate,code,frameobject,unicodeobject}.h`, `Include/internal/pycore_frame.h` and the debug
//! information of builds of each version. Tests compare each with running interpreters.

/// Offsets in bytes in CPython's structures, for the walk of a thread's frames.
///
/// From 3.14 on, the low three bits of a frame's pointer to its code are tags: they have to be cleared. From 3.13 on it may
/// point to an object that is not a code object, in a frame that is not to be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Where the frames of one activation of the evaluation loop end.
    pub groups: Groups,
    /// `PyThreadState.thread_id`: the address of the thread's structure ([`PthreadLayout`](super::PthreadLayout)).
    pub thread_id: u16,
    /// `PyThreadState.cframe` (3.11, 3.12).
    pub cframe: Option<u16>,
    /// The pointer to the current frame: in the `PyThreadState` or, if there is one, in its `cframe`.
    pub current_frame: u16,
    /// In a frame: the pointer to its caller's.
    pub previous: u16,
    /// In a frame: the pointer to its code object.
    pub code: u16,
    /// In a frame: the instruction that it executes, in the form [`instruction_form`](Self::instruction_form).
    pub instruction: u16,
    /// In a frame: the byte that tells the end of a group, `is_entry` in 3.11, `owner` later; 0 with [`Groups::OneFrame`].
    pub owner: u16,
    /// Bytes of a frame, from its start, that contain all of the above; at most 128.
    pub frame_bytes: u16,
    /// How a frame refers to its instruction.
    pub instruction_form: InstructionForm,
    /// In a code object: its bytecode (3.11+), else 0.
    pub bytecode: u16,
    /// Where threads execute copies of the bytecode.
    pub copies: Option<BytecodeCopies>,
    /// In a code object: the offset and the length (a multiple of 8, at most 96) of fields that never change, by which two
    /// code objects at the same address can be told apart.
    pub identity: (u16, u16),
    /// Whether the texts of its name and its path belong to its identity: until 3.11, it has no number of its own, and a later
    /// one may have its objects at the same addresses.
    pub identity_has_texts: bool,
    pub(super) names: NameLayout,
}

/// Where the frames of one activation of the evaluation loop end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Groups {
    /// Each activation has one frame (3.8 to 3.10).
    OneFrame,
    /// The frame whose `is_entry` is not 0 is the last one of its group (3.11).
    LastIsEntry,
    /// A frame whose `owner` is 3 or more (`FRAME_OWNED_BY_CSTACK`, `FRAME_OWNED_BY_INTERPRETER`) ends the group, and is not a
    /// function's (3.12+).
    EndsAtShim,
}

/// Copies of the bytecode of a code object: each thread executes its own, which it specializes (3.14t).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BytecodeCopies {
    /// In a frame: the number of the copy that contains its instruction, a `u32`. 0 is the code object's own bytecode.
    pub number: u16,
    /// In a code object: the pointer to an array of their addresses, behind a word with its length.
    pub array: u16,
}

/// How a frame refers to its instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstructionForm {
    /// An `int`, the offset in the bytecode in bytes; negative before the first instruction (3.8, 3.9).
    ByteIndex,
    /// An `int`, the offset in units of 2 bytes; negative before the first instruction (3.10).
    UnitIndex,
    /// A pointer to the instruction or its inline cache (3.11+); one unit before the first one if none was executed.
    Pointer,
}

/// Offsets in bytes for reading functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NameLayout {
    /// In a code object.
    pub(super) path: u16,
    /// In a code object: the name that is shown.
    pub(super) name: u16,
    /// In a code object: the table of lines, in the form `line_form`.
    pub(super) line_table: u16,
    /// In a code object.
    pub(super) first_line: u16,
    /// The size of a `PyASCIIObject`: where the text of an ASCII string is.
    pub(super) ascii_bytes: u16,
    /// The size of a `PyCompactUnicodeObject`: where the text of any other compact string is.
    pub(super) compact_bytes: u16,
    pub(super) line_form: LineForm,
    pub(super) head: ObjectHead,
    /// In the state of a string, the bits before its kind: whether it is interned.
    pub(super) interned_bits: u8,
}

/// [`NameLayout::interned_bits`] of all builds but 3.14t, in which they are a byte, to be accessed atomically.
pub(super) const INTERNED_BITS: u8 = 2;

/// How each object begins (`PyObject`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ObjectHead {
    /// With the global interpreter lock: the count of references, and the type.
    Locked,
    /// Without it (3.13t, 3.14t): the owner's thread, a mutex, counts of the owner's and of others' references, and the type.
    FreeThreaded,
}

impl ObjectHead {
    /// `PyVarObject.ob_size` and `PyASCIIObject.length`, which follow the head.
    pub(super) const fn size(self) -> u16 {
        match self {
            Self::Locked => 16,
            Self::FreeThreaded => 32,
        }
    }

    /// `PyObject.ob_type`, the last word of the head.
    pub(super) const fn type_pointer(self) -> u16 {
        self.size() - 8
    }

    /// `PyTypeObject.tp_name`, behind the size.
    pub(super) const fn type_name(self) -> u16 {
        self.size() + 8
    }

    /// `PyASCIIObject.state`, behind the length and a hash.
    pub(super) const fn text_state(self) -> u16 {
        self.size() + 16
    }

    /// `PyBytesObject.ob_sval`, behind the size and a hash.
    pub(super) const fn bytes_data(self) -> u16 {
        self.size() + 16
    }

    /// Whether an object has not been freed. Allocators link free blocks by their first word and leave the rest as it was
    /// until the block is used again.
    pub(super) fn is_live(self, object: &[u8]) -> bool {
        match self {
            // The count is below 2^32; since 3.14 with flags in the highest 16 bits of its word.
            Self::Locked => {
                let word = field(object, 0).map_or(0, u64::from_le_bytes);
                word as u32 != 0 && (word >> 32) as u16 == 0
            }
            // `ob_ref_local`, and `ob_ref_shared` above its two bits of state. The first word is the owner's thread.
            Self::FreeThreaded => {
                let local = field(object, 12).map_or(0, u32::from_le_bytes);
                let shared = field(object, 16).map_or(0, i64::from_le_bytes);
                local != 0 || shared >> 2 != 0
            }
        }
    }
}

/// The format of a table of lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineForm {
    /// `co_lnotab`: pairs of increments (3.8, 3.9).
    Increments,
    /// `co_linetable`: pairs of a length and an increment (3.10).
    Ranges,
    /// The location table (3.11+).
    Locations,
}

impl Layout {
    /// In a code object: the pointers to its name, its path, and its table of lines. All are in its identity.
    #[must_use]
    pub fn pointers(&self) -> [u16; 3] {
        [self.names.name, self.names.path, self.names.line_table]
    }

    /// The layout of 3.`minor`, if that is the same in all builds: 3.8 to 3.12.
    #[must_use]
    pub const fn of_minor(minor: u8) -> Option<Self> {
        match minor {
            8 | 9 => Some(Self::with_frame_objects(104, InstructionForm::ByteIndex, LineForm::Increments)),
            10 => Some(Self::with_frame_objects(96, InstructionForm::UnitIndex, LineForm::Ranges)),
            11 => Some(Self {
                groups: Groups::LastIsEntry,
                thread_id: 152,
                cframe: Some(56),
                current_frame: 8,
                previous: 48,
                code: 32,
                instruction: 56,
                owner: 68,
                frame_bytes: 72,
                instruction_form: InstructionForm::Pointer,
                bytecode: 184,
                copies: None,
                // From co_argcount to co_linetable: before these is a counter.
                identity: (56, 88),
                identity_has_texts: true,
                names: NameLayout {
                    path: 112,
                    name: 128,
                    line_table: 136,
                    first_line: 72,
                    ascii_bytes: 48,
                    compact_bytes: 72,
                    line_form: LineForm::Locations,
                    head: ObjectHead::Locked,
                    interned_bits: INTERNED_BITS,
                },
            }),
            12 => Some(Self {
                groups: Groups::EndsAtShim,
                thread_id: 136,
                cframe: Some(56),
                current_frame: 0,
                previous: 8,
                code: 0,
                instruction: 56,
                owner: 70,
                frame_bytes: 72,
                instruction_form: InstructionForm::Pointer,
                bytecode: 192,
                copies: None,
                // From co_flags to co_linetable, with co_version.
                identity: (48, 96),
                identity_has_texts: false,
                names: NameLayout {
                    path: 112,
                    name: 128,
                    line_table: 136,
                    first_line: 68,
                    ascii_bytes: 40,
                    compact_bytes: 56,
                    line_form: LineForm::Locations,
                    head: ObjectHead::Locked,
                    interned_bits: INTERNED_BITS,
                },
            }),
            _ => None,
        }
    }

    /// 3.8 to 3.10, in which each frame is an object.
    const fn with_frame_objects(instruction: u16, form: InstructionForm, line_form: LineForm) -> Self {
        Self {
            groups: Groups::OneFrame,
            thread_id: 176,
            cframe: None,
            current_frame: 24,
            previous: 24,
            code: 32,
            instruction,
            owner: 0,
            frame_bytes: (instruction + 4).next_multiple_of(8),
            instruction_form: form,
            bytecode: 0,
            copies: None,
            // From co_stacksize to co_lnotab or co_linetable.
            identity: (32, 96),
            identity_has_texts: true,
            names: NameLayout {
                path: 104,
                name: 112,
                line_table: 120,
                first_line: 40,
                ascii_bytes: 48,
                compact_bytes: 72,
                line_form,
                head: ObjectHead::Locked,
                interned_bits: INTERNED_BITS,
            },
        }
    }
}

/// Offsets in bytes of the pointers that lead to the threads of the first interpreter of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadList {
    /// In `_PyRuntime`: the interpreter that was created last, which is the main one if there is no other.
    pub(super) interpreter: u32,
    /// In an interpreter: the state of its newest thread.
    pub(super) first_thread: u32,
    /// In the state of a thread: that of the next one.
    pub(super) next_thread: u32,
}

impl ThreadList {
    /// The offsets in 3.`minor`, if they are the same in all builds: 3.8 to 3.12.
    pub(super) const fn of_minor(minor: u8) -> Option<Self> {
        let (interpreter, first_thread) = match minor {
            8..=10 => (32, 8),
            11 => (40, 16),
            12 => (40, 72),
            _ => return None,
        };
        Some(Self { interpreter, first_thread, next_thread: 8 })
    }
}

/// A field of an object.
pub(super) fn field<const BYTES: usize>(object: &[u8], at: u16) -> Option<[u8; BYTES]> {
    object.get(usize::from(at)..)?.first_chunk().copied()
}
