//! The functions of a process.

use std::sync::atomic::{AtomicBool, Ordering};

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

use super::layout::Layout;
use super::lines::bytecode_positions;
use super::scope::Scope;
use super::script::{Script, Scripts};
use super::text::{Heap, Object, Value};
use crate::cpython::{Function, FunctionError, Lines, hash};

/// The longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// The longest table of positions that is read, in bytes. Lines behind it are the first one.
const POSITIONS_BYTES_MAX: usize = 64 << 10;
/// What a function without a name is called, as developer tools do.
const ANONYMOUS: &str = "(anonymous)";
const POSITIONS_MASK: u64 = (1 << 48) - 1;

/// Reads the functions of a process that runs V8.
#[derive(Debug)]
pub struct Engine {
    layout: Layout,
    scripts: Scripts,
    /// Whether objects of the process were found to have this layout.
    is_checked: AtomicBool,
}

/// What identifies a function, and leads to the rest.
struct Identity {
    cookie: u32,
    /// With its number; `None` for functions of V8's own.
    script: Option<(Object, i32)>,
}

impl Engine {
    /// Objects have this layout.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, scripts: Scripts::default(), is_checked: AtomicBool::new(false) }
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
        let heap = Heap { memory, layout: &self.layout };
        let shared = Object::at(shared);
        let identity = self.identify(&heap, shared)?;
        if identity.cookie != cookie {
            return Err(FunctionError::Replaced);
        }
        let function = self.read_parts(&heap, shared, &identity);
        // The garbage collector may have moved what was read, and the program may have gone on.
        if self.identify(&heap, shared)?.cookie != cookie {
            return Err(FunctionError::Replaced);
        }
        function
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
    ) -> Result<Identity, FunctionError> {
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
        Ok(Identity { cookie: hash([id, positions, literal.into()].into_iter()), script })
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
        identity: &Identity,
    ) -> Result<Function, FunctionError> {
        let scope = match heap.value(shared, self.layout.name)? {
            Value::Object(object) if heap.type_of(object)? == self.layout.scope_type => {
                Scope::read(heap, object)?
            }
            Value::Object(object) if heap.is_string(object)? => {
                Scope { name: Some(object), ..Scope::default() }
            }
            _ => Scope::default(),
        };
        let mut name = String::new();
        for string in [scope.name, scope.inferred_name].into_iter().flatten() {
            if name.is_empty() {
                name = heap.text(string, NAME_BYTES_MAX)?;
            }
        }
        let name = if name.is_empty() { ANONYMOUS.into() } else { name.into() };
        let Some((script, id)) = identity.script else {
            return Ok(Function::new(name, "".into(), 0, None));
        };
        let script = self.scripts.read(heap, script, id)?;
        let first_line = scope.position.map_or(0, |position| script.line_of(position));
        let lines = self.read_lines(heap, shared, &script)?;
        Ok(Function::new(name, script.path.into(), first_line, lines))
    }

    /// The lines of the bytecode, if that has positions: V8 leaves them out until it needs them.
    fn read_lines(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        shared: Object,
        script: &Script,
    ) -> Result<Option<Lines>, FunctionError> {
        let layout = &self.layout;
        let Value::Object(bytecode) = heap.value(shared, layout.data)? else { return Ok(None) };
        if layout.bytecodes == 0 || heap.type_of(bytecode)? != layout.bytecode_type {
            return Ok(None);
        }
        let Value::Object(table) = heap.value(bytecode, layout.bytecode_positions)? else { return Ok(None) };
        if !layout.byte_array_types.contains(&heap.type_of(table)?) {
            return Ok(None);
        }
        let bytes = heap.value(table, 8)?.number().and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return Ok(None) };
        let mut positions = vec![0; bytes.min(POSITIONS_BYTES_MAX)];
        heap.memory.read_exact(table.address(16)?, &mut positions)?;
        // Frames count from the object's tagged address.
        let start = u32::from(layout.bytecodes) - 1;
        let rows = bytecode_positions(&positions).into_iter();
        let rows = rows
            .map(|(offset, position)| (offset.saturating_add(start), script.line_of(position.cast_signed())));
        Ok(Some(Lines::from_rows(rows)))
    }
}
