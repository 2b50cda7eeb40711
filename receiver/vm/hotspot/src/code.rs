//! What is at an address in a virtual machine: an interpreted method, the methods at an instruction of compiled code, or other
//! code.

use std::sync::Arc;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::chunks::Chunks;
use sidewinder_vm_runtime::cookie::hash;
use sidewinder_vm_runtime::{Code, CompiledCall, Function, FunctionError};

use super::interrupted::{CompiledCode, Scopes};
use super::layout::BLOB_BYTES_MAX;
use super::machine::VirtualMachine;
use super::object::{pointer, read_object, u16_field, u32_field};
use super::scopes::{MethodDebugInfo, MethodScope};

/// The longest name of a stub, in bytes.
const STUB_NAME_BYTES_MAX: usize = 64;
/// The names of blobs that are methods: compiled ones, and wrappers of those in other languages.
const COMPILED_BLOB: &str = "nmethod";
const NATIVE_BLOB: &str = "native nmethod";
/// The method that a virtual thread's first one seems to be called by: the carrier's frames follow it.
const ENTER_CONTINUATION: &str = "jdk.internal.vm.Continuation.enterSpecial(";
/// The blob that such a thread's frames return to if those of their callers are still in the heap, where a yield has put them: they
/// are brought back one by one.
const CONTINUATION_STUBS: &str = "StubRoutines (continuation";
/// What the frames of both are shown as.
const CONTINUATION: &str = "[continuation]";
/// The cookie of the interpreter's own code.
const INTERPRETER_COOKIE: u32 = 1;

/// An instruction of a blob of machine code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CodePlace {
    /// Its offset from the start of the code.
    pub offset: u32,
    /// Whether it is the one behind a call that is being made, rather than one that is to be executed.
    pub is_return_address: bool,
}

impl VirtualMachine {
    /// Reads the code at an address, if it has the given cookie: a method, by the address of its `Method`.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_interpreted(
        &self,
        memory: &impl ForeignMemory,
        method: Avma,
        cookie: u32,
    ) -> Result<Code, FunctionError> {
        if (method, cookie) == (self.interpreter.0, INTERPRETER_COOKIE) {
            return Ok(Code::Function(stub("Interpreter")));
        }
        let is_same = || Ok::<bool, FunctionError>(self.method_cookie(memory, method)? == cookie);
        if !is_same()? {
            return Err(FunctionError::Replaced);
        }
        let function = self.read_method(&Chunks::new(memory), method);
        if is_same()? { function.map(Code::Function) } else { Err(FunctionError::Replaced) }
    }

    /// Reads what is at an instruction of the blob of machine code at an address, if that has the given cookie.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_blob(
        &self,
        memory: &impl ForeignMemory,
        blob: Avma,
        cookie: u32,
        place: CodePlace,
    ) -> Result<Code, FunctionError> {
        let header = self.read_live_blob(memory, blob, cookie)?;
        let name = read_c_string(memory, pointer(&header, self.blob.name)?)?;
        if name.starts_with(CONTINUATION_STUBS) && place.is_return_address {
            return Ok(continuation());
        }
        if name != COMPILED_BLOB && name != NATIVE_BLOB {
            return Ok(Code::Function(stub(&name)));
        }
        let code = self.read_nmethod(&Chunks::new(memory), blob, &header, place, name == NATIVE_BLOB);
        // Code is freed before the methods in it are: what was read is its own if it is still there.
        self.read_live_blob(memory, blob, cookie)?;
        let calls = code?;
        let is_continuation = name == NATIVE_BLOB
            && calls.first().is_some_and(|call| call.function.name().starts_with(ENTER_CONTINUATION));
        if is_continuation {
            return Ok(continuation());
        }
        Ok(Code::Compiled(calls.into()))
    }

    fn read_nmethod(
        &self,
        memory: &impl ForeignMemory,
        blob: Avma,
        header: &[u8],
        place: CodePlace,
        is_native: bool,
    ) -> Result<Vec<CompiledCall>, FunctionError> {
        let own = pointer(header, self.blob.method)?;
        let mut found = Scopes::default();
        if let Some(layout) = self.debug.filter(|_| !is_native) {
            let debug = MethodDebugInfo::new(&layout, self.version.0, blob, header)?;
            found = if place.is_return_address {
                Scopes::certain(debug.at_call(memory, place.offset)?)
            } else {
                let code = CompiledCode {
                    memory,
                    start: self.code_start(blob, header)?,
                    frame_complete: self.frame_complete(header)?,
                    method: own,
                    debug,
                    has_debug_everywhere: self.has_debug_everywhere,
                };
                code.scopes_at(place.offset)?
            };
        }
        if found.scopes.last().is_none_or(|outermost| outermost.method != own) {
            found = Scopes { scopes: vec![MethodScope { method: own, bci: -1 }], certain: 0 };
        }
        let Scopes { scopes, certain } = found;
        let first_certain = scopes.len() - certain;
        let mut calls: Vec<CompiledCall> = Vec::new();
        for (number, scope) in scopes.into_iter().enumerate() {
            let function = self.read_method(memory, scope.method)?;
            let line =
                if number < first_certain { None } else { function.line_at(scope.bci.cast_unsigned()) };
            calls
                .push(CompiledCall { function: Arc::new(function.without_lines()), line: line.unwrap_or(0) });
        }
        Ok(calls)
    }

    fn code_start(&self, blob: Avma, header: &[u8]) -> Result<Avma, FunctionError> {
        if !self.blob.has_offsets {
            return pointer(header, self.blob.code);
        }
        let offset = u32_field(header, self.blob.code)?;
        blob.checked_add(offset.into()).ok_or(FunctionError::Malformed("not an address"))
    }

    /// From which offset in the code on it has its frame: 0, if it is negative.
    fn frame_complete(&self, header: &[u8]) -> Result<u32, FunctionError> {
        let at = self.blob.frame_complete;
        let offset = if self.blob.frame_complete_is_short {
            u16_field(header, at)?.cast_signed().into()
        } else {
            u32_field(header, at)?.cast_signed()
        };
        Ok(offset.max(0).cast_unsigned())
    }

    /// Reads the start of a blob.
    ///
    /// # Errors
    /// [`FunctionError::Replaced`] if it has another cookie, or was freed.
    fn read_live_blob(
        &self,
        memory: &impl ForeignMemory,
        blob: Avma,
        cookie: u32,
    ) -> Result<Vec<u8>, FunctionError> {
        let layout = &self.blob;
        let block_bytes = u16::from(layout.header_bytes);
        let block =
            blob.0.checked_sub(block_bytes.into()).ok_or(FunctionError::Malformed("not an address"))?;
        let mut header = read_object(memory, Avma(block), block_bytes + BLOB_BYTES_MAX)?;
        let is_used = header.get(usize::from(layout.used)).is_some_and(|used| *used != 0);
        header.drain(..usize::from(block_bytes).min(header.len()));
        if is_used && self.blob_cookie(&header)? == cookie {
            Ok(header)
        } else {
            Err(FunctionError::Replaced)
        }
    }

    /// The cookie of a blob of machine code, as walks compute it, by its first bytes.
    ///
    /// # Errors
    /// If they are too few.
    pub fn blob_cookie(&self, header: &[u8]) -> Result<u32, FunctionError> {
        let layout = &self.blob;
        let size = u32_field(header, layout.size)?;
        let mut words = vec![pointer(header, layout.name)?.0, size.into()];
        if size >= layout.nmethod_bytes() {
            words.push(u32_field(header, layout.compile_id)?.into());
            words.push(pointer(header, layout.method)?.0);
        }
        Ok(hash(words.into_iter()))
    }
}

/// The frame between those of a virtual thread and those of its carrier.
fn continuation() -> Code {
    Code::Function(Function::marker(CONTINUATION.into(), "".into()))
}

/// Code of the virtual machine that is no method.
fn stub(name: &str) -> Function {
    let name: Box<str> = format!("[jvm: {name}]").into();
    Function::marker(name.clone(), name.into())
}

fn read_c_string(memory: &impl ForeignMemory, at: Avma) -> Result<String, FunctionError> {
    let mut text = Vec::new();
    for number in 0..STUB_NAME_BYTES_MAX as u64 / 8 {
        let address = at.checked_add(8 * number).ok_or(FunctionError::Malformed("not an address"))?;
        let word = memory.word(address)?.to_le_bytes();
        let end = word.iter().position(|byte| *byte == 0);
        text.extend(&word[..end.unwrap_or(word.len())]);
        if end.is_some() {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
