//! Reads functions from code objects.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::lines::Lines;
use sidewinder_vm_runtime::{Function, FunctionError};

use super::cookie::hash_identity;
use super::layout::{Layout, NameLayout, ObjectHead, field};
use super::lines::decode;
use super::text::{hash_of_copy, hash_of_text, read_bytes, read_text};

/// The longest name that is kept, in bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// The longest path that is kept, in bytes.
const PATH_BYTES_MAX: usize = 4 << 10;
/// The longest table of lines that is read, in bytes: lines behind it are unknown.
const LINE_TABLE_BYTES_MAX: usize = 64 << 10;

/// The name of the type of code objects.
const CODE_TYPE: &[u8; 5] = b"code\0";

/// A copy of a code object, and of the start of each object that it refers to: a function can be read from it after its
/// process has ended.
#[derive(Clone, Copy, Debug)]
pub struct CodeCopy<'bytes> {
    /// Its first 32 bytes.
    pub head: &'bytes [u8],
    /// The bytes at [`Layout::identity`]; more may follow.
    pub identity: &'bytes [u8],
    /// The `str` of its name.
    pub name: &'bytes [u8],
    /// The `str` of its path.
    pub path: &'bytes [u8],
    /// The `bytes` of its lines.
    pub lines: &'bytes [u8],
}

/// The objects of a [`CodeCopy`] at their addresses.
struct CopiedObjects<'bytes>([(Avma, &'bytes [u8]); 3]);

impl ForeignMemory for CopiedObjects<'_> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let found = self.0.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(at.checked_offset_from(*start)?).ok()?;
            bytes.get(from..from.checked_add(to.len())?)
        });
        to.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Layout {
    /// Reads the function whose code object is at an address, if it has the given cookie.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_function(
        &self,
        memory: &impl ForeignMemory,
        code: Avma,
        cookie: u32,
    ) -> Result<Function, FunctionError> {
        let object = self.read_live_object(memory, code, cookie)?;
        let function = self.read_parts(memory, &object);
        // What the object refers to lives as long as itself: what was read is its own if it is still there.
        let object = self.read_live_object(memory, code, cookie)?;
        if is_code(memory, &object, self.names.head) { function } else { Err(FunctionError::Replaced) }
    }

    /// The cookie of a code object: a hash of its identity, never 0.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_cookie(&self, memory: &impl ForeignMemory, code: Avma) -> Result<u32, FunctionError> {
        self.cookie_of(memory, &self.read_object(memory, code)?)
    }

    /// The cookie of a copy; `None` if that ends before what is hashed.
    #[must_use]
    pub fn copied_cookie(&self, copy: CodeCopy<'_>) -> Option<u32> {
        let identity = copy.identity.get(..self.identity.1.into())?;
        let text = |object| hash_of_copy(object, &self.names);
        let texts = match self.identity_has_texts {
            true => Some([text(copy.name)?, text(copy.path)?]),
            false => None,
        };
        Some(hash_identity(identity, texts))
    }

    fn cookie_of(&self, memory: &impl ForeignMemory, object: &[u8]) -> Result<u32, FunctionError> {
        let text = |at| hash_of_text(memory, pointer(object, at), &self.names);
        let texts = match self.identity_has_texts {
            true => Some([text(self.names.name)?, text(self.names.path)?]),
            false => None,
        };
        Ok(hash_identity(object.get(usize::from(self.identity.0)..).unwrap_or_default(), texts))
    }

    /// Reads a function from a copy of its code object, if that has the given cookie. Names and paths that are longer than
    /// the copy are cut; a longer table of lines is not used.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn copied_function(&self, copy: CodeCopy<'_>, cookie: u32) -> Result<Function, FunctionError> {
        let (start, bytes) = self.identity;
        let identity = copy.identity.get(..bytes.into()).ok_or(FunctionError::Replaced)?;
        if self.copied_cookie(copy) != Some(cookie) || !self.names.head.is_live(copy.head) {
            return Err(FunctionError::Replaced);
        }
        let object = [&vec![0; start.into()], identity].concat();
        let names = &self.names;
        let memory = CopiedObjects([
            (pointer(&object, names.name), copy.name),
            (pointer(&object, names.path), copy.path),
            (pointer(&object, names.line_table), copy.lines),
        ]);
        let text = |at, copied: &[u8], bytes_max| {
            let at = pointer(&object, at);
            let copied_bytes = copied.len().saturating_sub(names.compact_bytes.into()).min(bytes_max);
            read_text(&memory, at, names, bytes_max).or_else(|_| read_text(&memory, at, names, copied_bytes))
        };
        Ok(Function::new(
            text(names.name, copy.name, NAME_BYTES_MAX)?,
            text(names.path, copy.path, PATH_BYTES_MAX)?.into(),
            first_line(&object, names).try_into().unwrap_or(0),
            self.read_lines(&memory, &object).ok(),
        ))
    }

    /// Reads a code object up to the end of its identity, which contains all fields that are needed.
    ///
    /// # Errors
    /// [`FunctionError::Replaced`] if it has another cookie, or has been freed and its memory is not in use again.
    fn read_live_object(
        &self,
        memory: &impl ForeignMemory,
        code: Avma,
        cookie: u32,
    ) -> Result<Vec<u8>, FunctionError> {
        let object = self.read_object(memory, code)?;
        let is_same = self.names.head.is_live(&object)
            && self.cookie_of(memory, &object).is_ok_and(|current| current == cookie);
        if is_same { Ok(object) } else { Err(FunctionError::Replaced) }
    }

    fn read_object(&self, memory: &impl ForeignMemory, code: Avma) -> Result<Vec<u8>, FunctionError> {
        let (start, bytes) = self.identity;
        let mut object = vec![0; usize::from(start) + usize::from(bytes)];
        code.checked_add(object.len() as u64).ok_or(FunctionError::Malformed("not an address"))?;
        memory.read_exact(code, &mut object)?;
        Ok(object)
    }

    /// Reads what a code object refers to.
    fn read_parts(&self, memory: &impl ForeignMemory, object: &[u8]) -> Result<Function, FunctionError> {
        let names = &self.names;
        let name = read_text(memory, pointer(object, names.name), names, NAME_BYTES_MAX)?;
        let path = read_text(memory, pointer(object, names.path), names, PATH_BYTES_MAX)?.into();
        let lines = Some(self.read_lines(memory, object)?);
        Ok(Function::new(name, path, first_line(object, names).try_into().unwrap_or(0), lines))
    }

    fn read_lines(&self, memory: &impl ForeignMemory, object: &[u8]) -> Result<Lines, FunctionError> {
        let names = &self.names;
        let table = read_bytes(memory, pointer(object, names.line_table), names.head, LINE_TABLE_BYTES_MAX)?;
        Ok(decode(names.line_form, &table, first_line(object, names)))
    }
}

/// An address in a code object.
fn pointer(object: &[u8], at: u16) -> Avma {
    field(object, at).map_or(Avma(0), |word| Avma(u64::from_le_bytes(word)))
}

fn first_line(object: &[u8], names: &NameLayout) -> i32 {
    field(object, names.first_line).map_or(0, i32::from_le_bytes)
}

/// Whether the type of an object is that of code objects. Where an interpreter's heap is below 4 GiB, the pointer that an
/// allocator keeps in a free block may look like a count of references; the second word of such a block is no type.
fn is_code(memory: &impl ForeignMemory, object: &[u8], head: ObjectHead) -> bool {
    let name_at = pointer(object, head.type_pointer()).checked_add(head.type_name().into());
    let Some(Ok(name)) = name_at.map(|at| memory.word(at)) else { return false };
    let mut text = [0; CODE_TYPE.len()];
    memory.read_exact(Avma(name), &mut text).is_ok() && text == *CODE_TYPE
}

#[cfg(test)]
mod tests;
