//! The layout of V8's objects.

use super::code_layout::CodeLayout;
use super::lines::PositionForm;

/// Offsets of fields in objects, in bytes from their start, and numbers of types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectLayout {
    /// In a `Map`: the type of its objects.
    pub map_type: u16,
    /// In a `JSFunction`: its `SharedFunctionInfo`.
    pub shared: u16,
    /// In a `SharedFunctionInfo`: its `Script`.
    pub script: u16,
    /// Numbers of parameters, and the distance of two positions: 6 bytes that don't change.
    pub positions: u16,
    /// The number of the function in its script.
    pub literal: u16,
    /// In a `Script`: its number.
    pub script_id: u16,
    /// The type of a `Script`.
    pub script_type: u16,
    /// The first and the last type of a `JSFunction`.
    pub function_types: (u16, u16),
    /// The type of a `SharedFunctionInfo`.
    pub shared_type: u16,
    /// The type of a `ScopeInfo`.
    pub scope_type: u16,
    /// The type of a `BytecodeArray`.
    pub bytecode_type: u16,
    /// The type of a `FixedArray`.
    pub array_type: u16,
    /// The types of arrays of bytes.
    pub byte_array_types: [u16; 2],
    /// In a `SharedFunctionInfo`: its `BytecodeArray`, or what leads to it.
    pub data: u16,
    /// In a `SharedFunctionInfo`: its name, or its `ScopeInfo`, which has that.
    pub name: u16,
    /// In a `Script`: its text.
    pub source: u16,
    /// In a `Script`: its path or URL.
    pub source_name: u16,
    /// In a `Script`: the number of its first line.
    pub line_offset: u16,
    /// In a `Script`: the ends of its lines, once V8 needed them.
    pub line_ends: u16,
    /// In a `ScopeInfo`: where its variable part begins.
    pub scope_variables: u16,
    /// Whether a `ScopeInfo` has its position before its variable part (since V8 13).
    pub has_fixed_positions: bool,
    /// In a `BytecodeArray`: its bytecodes; 0 if unknown.
    pub bytecodes: u16,
    /// In a `BytecodeArray`: the positions of its bytecodes in the source.
    pub bytecode_positions: u16,
    /// How tables of positions are written; `None` if the version is unknown.
    pub position_form: Option<PositionForm>,
    /// Objects of machine code; `None` if their layout is unknown.
    pub code: Option<CodeLayout>,
    /// What frames of regular expressions have in the place of a function's context; `None` if that is unknown, before V8 11.
    pub regexp_frame: Option<u16>,
    /// Frames and instances of WebAssembly; `None` if their layout is unknown.
    pub wasm: Option<WasmLayout>,
}

/// Types of objects, an offset in bytes, and what frames have in the place of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WasmLayout {
    /// Of functions.
    pub function_frame: u16,
    /// Of code through which functions call JavaScript.
    pub to_javascript_frame: u16,
    /// The type of a `WasmModuleObject`.
    pub module_type: u16,
    /// In a `Script`: the `Foreign` that leads to its `NativeModule`.
    pub native_module: u16,
}
