//! The frames of stacks, as the programs send them.

use sidewinder_address::Avma;

use crate::intf::{self, sw_frame};
use crate::runtime::{VmMissing, WalkedRuntime};

/// One frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawFrame {
    head: u64,
    address: u64,
}

/// The address space of a frame's address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RawFrameKind {
    /// An offset in the file with this id.
    Native {
        /// As in [`MappedRange::file`](crate::MappedRange::file).
        file: u32,
    },
    /// An address in the kernel.
    Kernel,
    /// An address in the process, not backed by a file.
    Anonymous,
    /// A function of a language runtime. The frame has no address.
    Vm(VmFunction),
    /// Frames of a language runtime that could not be read. The frame has no address.
    Missing {
        /// Whose frames they are.
        runtime: WalkedRuntime,
        /// Why they are missing.
        reason: VmMissing,
    },
}

/// A function of a language runtime, at one of its instructions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VmFunction {
    /// Whose it is: a process can have several.
    pub runtime: WalkedRuntime,
    /// The address of the object that is the function. It is valid in one process only.
    pub object: Avma,
    /// A hash of the object's content: another object that gets its address has another one. Of a function with
    /// [`VmForm::CompiledAt`], its low bits, [`VmFunction::low_cookie`]. With [`VmForm::WebAssembly`], those of a hash of the 8 bytes
    /// in front of the instruction.
    pub cookie: u32,
    /// The instruction, as an offset in the function's code; negative before the first one, and 0 where the form has its address.
    pub place: i32,
    /// In which code that is.
    pub form: VmForm,
}

/// How a function of a language runtime is executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VmForm {
    /// It is interpreted: the object is the function.
    Interpreted,
    /// The object is machine code, in which the place is an instruction.
    Compiled {
        /// Whether that instruction is the one behind a call that is being made.
        is_return_address: bool,
    },
    /// The object is the function, and machine code of it runs.
    CompiledAt {
        /// The instruction; `None` if it is unknown.
        pc: Option<Avma>,
        /// As above.
        is_return_address: bool,
    },
    /// A regular expression, of which no more is known.
    RegularExpression,
    /// A function of WebAssembly, or code between such a function and one of JavaScript: the object is the data of its instance.
    WebAssembly {
        /// The instruction.
        pc: Avma,
        /// As above.
        is_return_address: bool,
    },
}

impl VmForm {
    /// Whether the functions and the line depend on the instruction, rather than on the object only.
    #[must_use]
    pub fn is_compiled(self) -> bool {
        self != Self::Interpreted
    }
}

impl VmFunction {
    /// The low bits of a cookie: what frames of [`VmForm::CompiledAt`] have room for.
    #[must_use]
    pub const fn low_cookie(cookie: u32) -> u32 {
        cookie & ((1 << intf::SW_V8_COOKIE_BITS) - 1)
    }
}

impl RawFrame {
    /// Creates a frame as the programs would send it.
    #[must_use]
    pub fn new(kind: RawFrameKind, address: u64, is_return_address: bool, is_unproven: bool) -> Self {
        let (number, id) = match kind {
            RawFrameKind::Native { file } => (intf::SW_FRAME_NATIVE, file),
            RawFrameKind::Kernel => (intf::SW_FRAME_KERNEL, 0),
            RawFrameKind::Anonymous => (intf::SW_FRAME_ANONYMOUS, 0),
            RawFrameKind::Vm(function) => return Self::from_function(function),
            RawFrameKind::Missing { runtime, reason } => return Self::missing(runtime, reason),
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(is_return_address, intf::SW_FRAME_RETURN_ADDRESS)
            | flag(is_unproven, intf::SW_FRAME_UNPROVEN);
        let head = u64::from(number)
            | u64::from(flags) << intf::SW_FRAME_FLAGS_SHIFT
            | u64::from(id) << intf::SW_FRAME_ID_SHIFT;
        Self { head, address }
    }

    fn from_function(VmFunction { runtime, object, cookie, place, form }: VmFunction) -> Self {
        let kind = match form {
            VmForm::WebAssembly { .. } => intf::SW_FRAME_V8_WASM,
            VmForm::RegularExpression => intf::SW_FRAME_V8_REGEXP,
            _ => runtime.frame_kind(),
        };
        let place = u64::from(place.cast_unsigned()) << intf::SW_VM_PLACE_SHIFT;
        let compiled = |is_return_address| match is_return_address {
            false => intf::SW_FRAME_COMPILED,
            true => intf::SW_FRAME_COMPILED | intf::SW_FRAME_RETURN_ADDRESS,
        };
        let at_pc = |pc: u64, is_return_address| {
            let mask = u64::from(intf::SW_V8_PC_LOW_MASK);
            let high = pc >> intf::SW_V8_PC_LOW_BITS << intf::SW_V8_COOKIE_BITS;
            let id = object.0 & !mask | pc & mask;
            (compiled(is_return_address), id, high | u64::from(VmFunction::low_cookie(cookie)))
        };
        let (flags, id, address) = match form {
            VmForm::RegularExpression => (0, 0, 0),
            VmForm::Interpreted => (0, object.0, place | u64::from(cookie)),
            VmForm::Compiled { is_return_address } => {
                (compiled(is_return_address), object.0, place | u64::from(cookie))
            }
            VmForm::CompiledAt { pc, is_return_address } => at_pc(pc.map_or(0, |pc| pc.0), is_return_address),
            VmForm::WebAssembly { pc, is_return_address } => at_pc(pc.0, is_return_address),
        };
        let flags = u64::from(flags) << intf::SW_FRAME_FLAGS_SHIFT;
        Self { head: u64::from(kind) | flags | id << intf::SW_FRAME_ID_SHIFT, address }
    }

    /// The frame that stands for missing frames of a language runtime.
    #[must_use]
    pub fn missing(runtime: WalkedRuntime, reason: VmMissing) -> Self {
        let flags = u64::from(intf::SW_FRAME_MISSING) << intf::SW_FRAME_FLAGS_SHIFT;
        Self { head: u64::from(runtime.frame_kind()) | flags, address: reason as u64 }
    }

    /// This native frame, as an activation of a runtime's loop.
    #[must_use]
    pub fn in_vm_loop(self) -> Self {
        Self { head: self.head | u64::from(intf::SW_FRAME_VM_LOOP) << intf::SW_FRAME_FLAGS_SHIFT, ..self }
    }

    /// The kind of the frame; `None` if it is unknown.
    #[must_use]
    pub fn kind(self) -> Option<RawFrameKind> {
        if self.vm_group_end().is_some() {
            return None;
        }
        let number = (self.head & 0xff) as u32;
        let runtime = WalkedRuntime::of_frame(number);
        if self.has(intf::SW_FRAME_MISSING) {
            let reason = VmMissing::from_number(self.address)?;
            return Some(RawFrameKind::Missing { runtime: runtime?, reason });
        }
        match number {
            intf::SW_FRAME_NATIVE => {
                Some(RawFrameKind::Native { file: (self.head >> intf::SW_FRAME_ID_SHIFT) as u32 })
            }
            intf::SW_FRAME_KERNEL => Some(RawFrameKind::Kernel),
            intf::SW_FRAME_ANONYMOUS => Some(RawFrameKind::Anonymous),
            intf::SW_FRAME_V8 if self.has(intf::SW_FRAME_COMPILED) => {
                let form = |pc: u64, is_return_address| VmForm::CompiledAt {
                    pc: (pc != 0).then_some(Avma(pc)),
                    is_return_address,
                };
                Some(RawFrameKind::Vm(self.function_at_pc(form)))
            }
            intf::SW_FRAME_V8_WASM => {
                let form = |pc, is_return_address| VmForm::WebAssembly { pc: Avma(pc), is_return_address };
                Some(RawFrameKind::Vm(self.function_at_pc(form)))
            }
            intf::SW_FRAME_V8_REGEXP => {
                let form = VmForm::RegularExpression;
                Some(RawFrameKind::Vm(VmFunction { form, ..self.function(runtime?) }))
            }
            _ => Some(RawFrameKind::Vm(self.function(runtime?))),
        }
    }

    /// The function of a frame of a language runtime.
    fn function(self, runtime: WalkedRuntime) -> VmFunction {
        VmFunction {
            runtime,
            object: Avma(self.head >> intf::SW_FRAME_ID_SHIFT),
            cookie: self.address as u32,
            place: ((self.address >> intf::SW_VM_PLACE_SHIFT) as u32).cast_signed(),
            form: if self.has(intf::SW_FRAME_COMPILED) {
                VmForm::Compiled { is_return_address: self.is_return_address() }
            } else {
                VmForm::Interpreted
            },
        }
    }

    /// The function of a frame of V8's whose machine code runs at an address that the frame has.
    fn function_at_pc(self, form: impl FnOnce(u64, bool) -> VmForm) -> VmFunction {
        let (id, mask) = (self.head >> intf::SW_FRAME_ID_SHIFT, u64::from(intf::SW_V8_PC_LOW_MASK));
        let pc = self.address >> intf::SW_V8_COOKIE_BITS << intf::SW_V8_PC_LOW_BITS | id & mask;
        VmFunction {
            runtime: WalkedRuntime::V8,
            object: Avma(id & !mask),
            cookie: VmFunction::low_cookie(self.address as u32),
            place: 0,
            form: form(pc, self.is_return_address()),
        }
    }

    /// The address, in the space given by [`kind`](Self::kind).
    #[must_use]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Whether the address is a return address, rather than that of the next instruction.
    #[must_use]
    pub fn is_return_address(self) -> bool {
        self.has(intf::SW_FRAME_RETURN_ADDRESS)
    }

    /// Whether the frame is an activation of a runtime's loop. The frames that it executes are before it.
    #[must_use]
    pub fn is_vm_loop(self) -> bool {
        self.has(intf::SW_FRAME_VM_LOOP)
    }

    /// Of what is not a frame, but follows the frames of an activation of CPython's loop whose native frame was not found: the
    /// address of what that keeps in its native frame, or 0.
    #[must_use]
    pub fn vm_group_end(self) -> Option<u64> {
        let is_end =
            (self.head & 0xff) as u32 == intf::SW_FRAME_CPYTHON && self.has(intf::SW_FRAME_GROUP_END);
        is_end.then_some(self.address)
    }

    /// What follows the frames of an activation, as the programs would send it.
    #[must_use]
    pub fn end_of_vm_group(anchor: u64) -> Self {
        let flags = u64::from(intf::SW_FRAME_GROUP_END) << intf::SW_FRAME_FLAGS_SHIFT;
        Self { head: u64::from(intf::SW_FRAME_CPYTHON) | flags, address: anchor }
    }

    /// Whether the frame was found by guessing: only sanity checks support it.
    #[must_use]
    pub fn is_unproven(self) -> bool {
        self.has(intf::SW_FRAME_UNPROVEN)
    }

    fn has(self, flag: u32) -> bool {
        (self.head >> intf::SW_FRAME_FLAGS_SHIFT) as u32 & 0xff & flag != 0
    }
}

impl From<sw_frame> for RawFrame {
    fn from(sw_frame { head, address }: sw_frame) -> Self {
        Self { head, address }
    }
}

impl std::fmt::Debug for RawFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}+{:#x}", self.kind(), self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_runtimes_are_read_as_they_were_made() {
        let form = VmForm::Interpreted;
        let (runtime, object) = (WalkedRuntime::HotSpot, Avma(0x7f12_3456_7890));
        let function = VmFunction { runtime, object, cookie: 0xffff_fffe, place: -2, form };
        let compiled = [true, false]
            .map(|is_return_address| VmFunction { form: VmForm::Compiled { is_return_address }, ..function });
        let missing = WalkedRuntime::ALL
            .into_iter()
            .flat_map(|runtime| VmMissing::ALL.map(|reason| RawFrameKind::Missing { runtime, reason }));
        let at_pc = [None, Some(Avma(0x7fff_1234_5677))].map(|pc| VmFunction {
            runtime: WalkedRuntime::V8,
            cookie: 0x7_fffe,
            place: 0,
            form: VmForm::CompiledAt { pc, is_return_address: false },
            ..function
        });
        let of_v8 = VmFunction { runtime: WalkedRuntime::V8, place: 0, ..function };
        let pc = Avma(0x7fff_1234_5673);
        let wasm = VmForm::WebAssembly { pc, is_return_address: false };
        let wasm = VmFunction { cookie: 0x7_fffe, form: wasm, ..of_v8 };
        let regexp = VmFunction { object: Avma(0), cookie: 0, form: VmForm::RegularExpression, ..of_v8 };
        let interpreted = WalkedRuntime::ALL.map(|runtime| VmFunction { runtime, ..function });
        let functions =
            compiled.into_iter().chain(interpreted).chain(at_pc).chain([wasm, regexp]).map(RawFrameKind::Vm);
        for kind in functions.chain(missing) {
            let frame = RawFrame::new(kind, 0, false, false);
            assert_eq!((frame.kind(), frame.is_vm_loop()), (Some(kind), false));
            let is_call = matches!(kind, RawFrameKind::Vm(function) if function == compiled[0]);
            assert_eq!(frame.is_return_address(), is_call);
        }
        let native = RawFrame::new(RawFrameKind::Native { file: 7 }, 0x1234, true, false);
        assert_eq!(native.in_vm_loop().kind(), native.kind());
        assert!(native.in_vm_loop().is_vm_loop() && !native.is_vm_loop());
        assert!(native.vm_group_end().is_none() && native.in_vm_loop().vm_group_end().is_none());
        let end = RawFrame::end_of_vm_group(0x7ffc_1234_5678);
        assert_eq!((end.vm_group_end(), end.kind()), (Some(0x7ffc_1234_5678), None));
    }
}
