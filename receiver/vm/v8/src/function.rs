//! The functions of a process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::chunks::Chunks;
use sidewinder_vm_runtime::cookie::hash;
use sidewinder_vm_runtime::lines::Lines;
use sidewinder_vm_runtime::source_map::SourceMaps;
use sidewinder_vm_runtime::{Code, CompiledCall, Function, FunctionError};

use super::bytecodes::BytecodeSizes;
use super::code_layout::CodeLayout;
use super::compiled::{Compiled, Compiler, Inlined, InstructionInFrame, read_bytes};
use super::layout::ObjectLayout;
use super::lines::{PositionForm, bytecode_positions, position_at};
use super::named::{Named, RecentFunctions};
use super::scope::ScopeInfo;
use super::script::{Script, Scripts};
use super::text::{Heap, Object, TaggedWord};
use super::wasm::{Modules, WasmFrame};

/// The longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// The longest table of positions that is read, in bytes. Lines behind it are the first one.
const POSITIONS_BYTES_MAX: usize = 64 << 10;
/// What a function without a name is called, as developer tools do.
const ANONYMOUS: &str = "(anonymous)";
/// What regular expressions are called: nothing leads from their code to their text.
const REGULAR_EXPRESSION: &str = "(regular expression)";
/// How the URLs begin that V8 gives modules of WebAssembly. A function of JavaScript in one is code of V8's own, which calls one of
/// WebAssembly.
const WASM_SCHEME: &str = "wasm://";
const TO_WASM: &str = "(JavaScript to WebAssembly)";
const POSITIONS_MASK: u64 = (1 << 48) - 1;

/// Reads the functions of a process that runs V8.
#[derive(Debug)]
pub struct Engine {
    layout: ObjectLayout,
    /// `None`: unknown.
    bytecode_sizes: Option<BytecodeSizes>,
    scripts: Scripts,
    /// Functions of compiled code.
    named: RecentFunctions,
    wasm_modules: Modules,
    /// Whether objects of the process were found to have this layout.
    is_checked: AtomicBool,
}

/// A frame of a function whose machine code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompiledFrame {
    /// The address of its `SharedFunctionInfo`.
    pub shared: Avma,
    /// Bits of its cookie.
    pub cookie: u32,
    /// Which bits these are.
    pub cookie_mask: u32,
    /// The instruction, if it is known.
    pub pc: Option<Avma>,
    /// Whether that is the one behind a call that is being made.
    pub is_return_address: bool,
}

/// What identifies a function, and leads to the rest.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FunctionIdentity {
    cookie: u32,
    /// With its number; `None` for functions of V8's own.
    script: Option<(Object, i32)>,
}

/// The function that stands for a regular expression.
#[must_use]
pub fn regular_expression() -> Function {
    Function::new(REGULAR_EXPRESSION.into(), "".into(), 0, None)
}

impl Engine {
    /// Objects have this layout, and bytecodes these sizes.
    #[must_use]
    pub fn new(layout: ObjectLayout, bytecode_sizes: Option<BytecodeSizes>) -> Self {
        Self {
            layout,
            bytecode_sizes,
            scripts: Scripts::default(),
            named: RecentFunctions::default(),
            wasm_modules: Modules::default(),
            is_checked: AtomicBool::new(false),
        }
    }

    /// From now on, functions are those of the sources that scripts were made of, by their source maps. Only the first call
    /// counts: to be called before anything is read.
    pub fn set_source_maps(&self, maps: Arc<dyn SourceMaps>) {
        self.scripts.set_maps(maps);
    }

    #[cfg(test)]
    pub(super) fn layout(&self) -> &ObjectLayout {
        &self.layout
    }

    /// Reads the function whose `SharedFunctionInfo` is at an address, if it has the given cookie.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_function(
        &self,
        memory: &impl ForeignMemory,
        shared: Avma,
        cookie: u32,
    ) -> Result<Function, FunctionError> {
        let chunks = Chunks::new(memory);
        let heap = Heap { memory: &chunks, layout: &self.layout };
        let shared = Object::at(shared);
        let identity = self.identify(&heap, shared)?;
        if identity.cookie != cookie {
            return Err(FunctionError::Replaced);
        }
        let function = self.read_parts(&heap, shared, &identity).and_then(|function| {
            let lines = self.read_lines(&heap, shared, &identity, function.path())?;
            Ok(function.with_lines(lines))
        });
        // The garbage collector may have moved what was read, and the program may have gone on.
        if self.identify_again(&heap, shared)?.cookie != cookie {
            return Err(FunctionError::Replaced);
        }
        function
    }

    /// Reads the functions of a frame of compiled code: those that are inlined at its instruction, if the code is still there;
    /// else the function alone, with its first line.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_compiled(
        &self,
        memory: &impl ForeignMemory,
        frame: CompiledFrame,
    ) -> Result<Code, FunctionError> {
        let chunks = Chunks::new(memory);
        let heap = Heap { memory: &chunks, layout: &self.layout };
        if let (Some(pc), Some(layout)) = (frame.pc, &self.layout.code) {
            let at = InstructionInFrame { pc, is_return_address: frame.is_return_address };
            match self.read_calls(&heap, layout, frame, at) {
                Ok(Some(calls)) => return Ok(Code::Compiled(calls)),
                Err(FunctionError::SourceMapNotLoaded) => return Err(FunctionError::SourceMapNotLoaded),
                Ok(None) | Err(_) => {}
            }
        }
        let shared = Object::at(frame.shared);
        if self.identify(&heap, shared)?.cookie & frame.cookie_mask != frame.cookie {
            return Err(FunctionError::Replaced);
        }
        let (named, _) = self.read_named(&heap, shared)?;
        let is_same = named.cookie & frame.cookie_mask == frame.cookie;
        if is_same { Ok(Code::Function((*named.function).clone())) } else { Err(FunctionError::Replaced) }
    }

    /// Reads the function of WebAssembly of a frame.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_wasm(
        &self,
        memory: &impl ForeignMemory,
        frame: WasmFrame,
    ) -> Result<Function, FunctionError> {
        let heap = Heap { memory, layout: &self.layout };
        let wasm = self.layout.wasm.as_ref();
        let wasm = wasm.ok_or(FunctionError::Malformed("an unknown layout of instances"))?;
        self.wasm_modules.read_function(&heap, wasm, frame)
    }

    /// `None`: the code at the instruction is of no compiler, or of another function. The function may have been moved: the code of
    /// an optimizing compiler leads to where it is now.
    fn read_calls(
        &self,
        heap: &Heap<'_, Chunks<'_, impl ForeignMemory>>,
        layout: &CodeLayout,
        frame: CompiledFrame,
        at: InstructionInFrame,
    ) -> Result<Option<Box<[CompiledCall]>>, FunctionError> {
        let Some(code) = Compiled::find(heap, layout, at)? else { return Ok(None) };
        let shared = match code.compiler {
            Compiler::Optimizing { shared, .. } => shared,
            Compiler::Baseline { .. } => Object::at(frame.shared),
        };
        if self.identify(heap, shared)?.cookie & frame.cookie_mask != frame.cookie {
            return Ok(None);
        }
        let inlined = match code.compiler {
            Compiler::Optimizing { .. } => code.calls_at(heap, layout, at)?,
            Compiler::Baseline { bytecode } if self.bytecode_of(heap, shared)? == Some(bytecode) => {
                vec![self.read_baseline(heap, &code, bytecode, shared, at)?]
            }
            Compiler::Baseline { .. } => return Ok(None),
        };
        let mut functions = HashMap::new();
        let mut calls = Vec::new();
        for inlined in inlined {
            let (named, script) = match functions.entry(inlined.shared) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let (named, identity) = self.read_named(heap, inlined.shared)?;
                    unknown.insert((named, self.script_of(heap, &identity)?))
                }
            };
            let function = &named.function;
            let line = script.as_ref().zip(inlined.position);
            let line = line.map(|(script, position)| script.line_in(function.path(), position));
            let line = line.filter(|line| *line != 0).unwrap_or(function.first_line);
            calls.push(CompiledCall { function: Arc::clone(&named.function), line });
        }
        let memory = heap.memory.again();
        let is_current = code.is_current(&Heap { memory: &memory, layout: heap.layout }, layout)?;
        Ok(is_current.then(|| calls.into()))
    }

    /// The position of an instruction of the baseline compiler, if the bytecode has positions.
    fn read_baseline(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        code: &Compiled,
        bytecode: Object,
        shared: Object,
        at: InstructionInFrame,
    ) -> Result<Inlined, FunctionError> {
        let (Some(sizes), Some((table, is_cut, form))) =
            (&self.bytecode_sizes, self.read_positions(heap, bytecode)?)
        else {
            return Ok(Inlined { shared, position: None });
        };
        let offset = code.bytecode_at(heap, sizes, bytecode, at)?;
        let position = offset.and_then(|offset| position_at(&table, form, is_cut, offset)?.in_source());
        Ok(Inlined { shared, position })
    }

    /// A function without the lines of its bytecode, read or as it was read last: many instructions have it in common.
    fn read_named(
        &self,
        heap: &Heap<'_, Chunks<'_, impl ForeignMemory>>,
        shared: Object,
    ) -> Result<(Arc<Named>, FunctionIdentity), FunctionError> {
        let identity = self.identify(heap, shared)?;
        if let Some(known) = self.named.get(shared, identity.cookie) {
            return Ok((known, identity));
        }
        let function = self.read_parts(heap, shared, &identity)?;
        // As above.
        if self.identify_again(heap, shared)? != identity {
            return Err(FunctionError::Replaced);
        }
        let named = Named { cookie: identity.cookie, function: Arc::new(function) };
        Ok((self.named.add(shared, named), identity))
    }

    /// The script of a function; `None` for functions of V8's own.
    fn script_of(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        identity: &FunctionIdentity,
    ) -> Result<Option<Script>, FunctionError> {
        identity.script.map(|(script, id)| self.scripts.read(heap, script, id)).transpose()
    }

    /// The cookie of the function at an address, as the programs compute it.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_cookie(&self, memory: &impl ForeignMemory, shared: Avma) -> Result<u32, FunctionError> {
        Ok(self.identify(&Heap { memory, layout: &self.layout }, Object::at(shared))?.cookie)
    }

    fn identify(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        shared: Object,
    ) -> Result<FunctionIdentity, FunctionError> {
        let layout = &self.layout;
        let map = heap.map(shared)?;
        if heap.type_of_map(map)? != layout.shared_type {
            return Err(FunctionError::Replaced);
        }
        self.check(heap, map)?;
        let positions = heap.memory.word(shared.address(layout.positions.into())?)? & POSITIONS_MASK;
        let literal = heap.u32(shared, layout.literal.into())?;
        let script = heap.value(shared, layout.script)?.object()?;
        let script = if heap.type_of(script)? == layout.script_type {
            let id = heap.value(script, layout.script_id)?.number();
            Some((script, id.ok_or(FunctionError::Malformed("a script without a number"))?))
        } else {
            None
        };
        let id = script.map_or(0, |(_, id)| u64::from(id.cast_unsigned()) << 32);
        Ok(FunctionIdentity { cookie: hash([id, positions, literal.into()].into_iter()), script })
    }

    /// What is at the address now.
    fn identify_again(
        &self,
        heap: &Heap<'_, Chunks<'_, impl ForeignMemory>>,
        shared: Object,
    ) -> Result<FunctionIdentity, FunctionError> {
        self.identify(&Heap { memory: &heap.memory.again(), layout: heap.layout }, shared)
    }

    /// Checks that maps are objects as they should be: the map of maps is its own.
    fn check(&self, heap: &Heap<'_, impl ForeignMemory>, map: Object) -> Result<(), FunctionError> {
        if self.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let of_maps = heap.map(map)?;
        if heap.map(of_maps)? != of_maps {
            return Err(FunctionError::Malformed("another layout of objects"));
        }
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn read_parts(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        shared: Object,
        identity: &FunctionIdentity,
    ) -> Result<Function, FunctionError> {
        let scope = match heap.value(shared, self.layout.name)? {
            TaggedWord::Object(object) if heap.type_of(object)? == self.layout.scope_type => {
                ScopeInfo::read(heap, object)?
            }
            TaggedWord::Object(object) if heap.is_string(object)? => {
                ScopeInfo { name: Some(object), ..ScopeInfo::default() }
            }
            _ => ScopeInfo::default(),
        };
        let mut name = String::new();
        for string in [scope.name, scope.inferred_name].into_iter().flatten() {
            if name.is_empty() {
                name = heap.text(string, NAME_BYTES_MAX)?;
            }
        }
        if name.is_empty() {
            ANONYMOUS.clone_into(&mut name);
        }
        let Some(script) = self.script_of(heap, identity)? else {
            return Ok(Function::new(name.into(), "".into(), 0, None));
        };
        if script.text.path.starts_with(WASM_SCHEME) {
            return Ok(Function::new(TO_WASM.into(), TO_WASM.into(), 0, None));
        }
        let Some(position) = scope.position else {
            return Ok(Function::new(name.into(), Arc::clone(&script.text.path), 0, None));
        };
        let start = script.start_of(heap, &name, position);
        Ok(Function::new(start.name.unwrap_or_else(|| name.into()), start.path, start.line, None))
    }

    /// The bytecode of a function, if it has been compiled to that.
    fn bytecode_of(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        shared: Object,
    ) -> Result<Option<Object>, FunctionError> {
        let TaggedWord::Object(mut data) = heap.value(shared, self.layout.data)? else { return Ok(None) };
        // The code of the baseline compiler is in the place of its bytecode, and leads to that.
        if let Some(code) = &self.layout.code
            && heap.type_of(data)? == code.code_type
        {
            let TaggedWord::Object(bytecode) = heap.value(data, code.deoptimization)? else {
                return Ok(None);
            };
            data = bytecode;
        }
        let is_bytecode = self.layout.bytecodes != 0 && heap.type_of(data)? == self.layout.bytecode_type;
        Ok(is_bytecode.then_some(data))
    }

    /// The table of positions of a bytecode, and whether it is cut, if there is one: V8 makes it when it needs it.
    fn read_positions(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        bytecode: Object,
    ) -> Result<Option<(Vec<u8>, bool, PositionForm)>, FunctionError> {
        let layout = &self.layout;
        let (TaggedWord::Object(table), Some(form)) =
            (heap.value(bytecode, layout.bytecode_positions)?, layout.position_form)
        else {
            return Ok(None);
        };
        if !layout.byte_array_types.contains(&heap.type_of(table)?) {
            return Ok(None);
        }
        let (positions, is_cut) = read_bytes(heap, table, POSITIONS_BYTES_MAX)?;
        Ok((!positions.is_empty()).then_some((positions, is_cut, form)))
    }

    /// The lines of the bytecode of a function with this path.
    fn read_lines(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        shared: Object,
        identity: &FunctionIdentity,
        path: &str,
    ) -> Result<Option<Lines>, FunctionError> {
        let Some(script) = self.script_of(heap, identity)? else { return Ok(None) };
        let Some(bytecode) = self.bytecode_of(heap, shared)? else { return Ok(None) };
        let Some((positions, _, form)) = self.read_positions(heap, bytecode)? else { return Ok(None) };
        // Frames count from the object's tagged address.
        let start = u32::from(self.layout.bytecodes) - 1;
        let rows = bytecode_positions(&positions, form).into_iter();
        let rows = rows.map(|(offset, position)| {
            (offset.saturating_add(start), script.line_in(path, position.cast_signed()))
        });
        Ok(Some(Lines::from_rows(rows)))
    }
}
