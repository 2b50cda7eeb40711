//! Which function of which process is named.

use sidewinder_address::Avma;
use sidewinder_bpf::{VmForm, VmFunction, WalkedRuntime};
use sidewinder_process::ProcessKey;

const EXECUTION_SHIFT: u32 = 56;
const FORM_SHIFT: u32 = 2;
const _: () = assert!(WalkedRuntime::ALL.len() <= 1 << FORM_SHIFT);
const FORM_MASK: u64 = 7;
const IS_RETURN_ADDRESS: u64 = 1 << 5;

/// A function of a process. If it depends on the instruction, as it does in machine code, so does the key; else it is the same for all
/// of them. Small, since each function that has been named has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FunctionKey {
    pid: u32,
    cookie: u32,
    instance: u64,
    object: Avma,
    /// The instruction, an address or an offset, and in the top byte the runtime and how it executes the function.
    execution: u64,
}

impl FunctionKey {
    pub(super) fn new(process: ProcessKey, function: VmFunction) -> Self {
        let VmFunction { runtime, object, cookie, place, form } = function;
        let place = u64::from(place.cast_unsigned());
        let (form, is_return_address, instruction) = match form {
            VmForm::Interpreted => (0, false, 0),
            VmForm::Compiled { is_return_address } => (1, is_return_address, place),
            VmForm::CompiledAt { pc, is_return_address } => (2, is_return_address, pc.map_or(0, |pc| pc.0)),
            VmForm::RegularExpression => (3, false, place),
            VmForm::WebAssembly { pc, is_return_address } => (4, is_return_address, pc.0),
        };
        let flag = if is_return_address { IS_RETURN_ADDRESS } else { 0 };
        let execution = (runtime as u64 | form << FORM_SHIFT | flag) << EXECUTION_SHIFT;
        let instruction = instruction & ((1 << EXECUTION_SHIFT) - 1);
        let ProcessKey { pid, instance } = process;
        Self { pid, cookie, instance, object, execution: execution | instruction }
    }

    pub(super) fn process(&self) -> ProcessKey {
        ProcessKey { pid: self.pid, instance: self.instance }
    }

    /// As [`VmForm::is_compiled`].
    pub(super) fn is_compiled(&self) -> bool {
        self.execution >> EXECUTION_SHIFT >> FORM_SHIFT & FORM_MASK != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessKey = ProcessKey { pid: 7, instance: 1 };

    fn function(form: VmForm, place: i32) -> VmFunction {
        VmFunction { runtime: WalkedRuntime::V8, object: Avma(0x7fff_0000_1001), cookie: 3, place, form }
    }

    #[test]
    fn only_instructions_of_machine_code_have_keys_of_their_own() {
        let key = |form, place| FunctionKey::new(PROCESS, function(form, place));
        let interpreted = key(VmForm::Interpreted, 8);
        assert_eq!(interpreted, key(VmForm::Interpreted, -1));
        assert!(!interpreted.is_compiled());
        assert_eq!(interpreted.process(), PROCESS);

        let at = |pc, is_return_address| VmForm::CompiledAt { pc, is_return_address };
        let pc = Avma(0x7fff_ffff_f123);
        let forms = [
            (VmForm::Compiled { is_return_address: false }, 8),
            (VmForm::Compiled { is_return_address: false }, -8),
            (VmForm::Compiled { is_return_address: true }, 8),
            (at(None, true), 0),
            (at(None, false), 0),
            (at(Some(pc), false), 0),
            (at(Some(pc), true), 0),
            (VmForm::RegularExpression, 0),
            (VmForm::WebAssembly { pc, is_return_address: true }, 0),
        ];
        let keys = forms.map(|(form, place)| key(form, place));
        assert!(keys.iter().all(FunctionKey::is_compiled));
        let distinct: std::collections::HashSet<_> = keys.into_iter().chain([interpreted]).collect();
        assert_eq!(distinct.len(), forms.len() + 1);
        assert_eq!(size_of::<FunctionKey>(), 32);
    }
}
