//! A function of a language runtime.

use std::borrow::Cow;
use std::sync::Arc;

use crate::lines::Lines;

/// A function of a process, or another body of code: a module, a class, a lambda, a comprehension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// What it can share with others of its class or its file: what precedes its name, and the path.
    pub source: Arc<str>,
    /// Of what precedes its name.
    class_bytes: u16,
    name: Box<str>,
    is_marker: bool,
    /// The line of its first decorator, or of its definition; 0 if that is not a line.
    pub first_line: u32,
    /// `None`: they were not copied, and each instruction has the first line.
    lines: Option<Lines>,
}

impl Function {
    /// A function with lines that were read by other means.
    pub fn new(name: Box<str>, path: Arc<str>, first_line: u32, lines: Option<Lines>) -> Self {
        Self { source: path, class_bytes: 0, name, is_marker: false, first_line, lines }
    }

    /// A method with lines of ranges that begin at a place, sorted by that; a line of 0 is none. `class` precedes its name, and ends
    /// with a dot.
    #[must_use]
    pub fn method(class: &str, name: &str, path: &str, lines: &[(u32, u32)]) -> Self {
        let first_line = lines.iter().map(|(_, line)| *line).min().unwrap_or(0);
        let lines = Lines::from_rows(lines.iter().copied());
        let method = Self::new(name.into(), format!("{class}{path}").into(), first_line, Some(lines));
        // Classes with longer names are none that a class file can have.
        Self { class_bytes: class.len().try_into().unwrap_or(0), ..method }
    }

    /// Its qualified name, or before CPython 3.11, which doesn't keep that, its name.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self.class() {
            "" => Cow::Borrowed(&self.name),
            class => Cow::Owned(format!("{class}{}", self.name)),
        }
    }

    /// The path of its source, as it was given to the compiler. At most 4 KiB.
    #[must_use]
    pub fn path(&self) -> &str {
        self.source.get(self.class_bytes.into()..).unwrap_or_default()
    }

    /// The path, which the function may share.
    #[must_use]
    pub fn to_shared_path(&self) -> Arc<str> {
        if self.class_bytes == 0 { Arc::clone(&self.source) } else { self.path().into() }
    }

    fn class(&self) -> &str {
        self.source.get(..self.class_bytes.into()).unwrap_or_default()
    }

    /// This function, with these lines of its instructions.
    pub fn with_lines(self, lines: Option<Lines>) -> Self {
        Self { lines, ..self }
    }

    /// This function, without the lines of its instructions.
    pub fn without_lines(self) -> Self {
        Self { lines: None, ..self }
    }

    /// Whether this is no function of the program, but code of the runtime's own, which has its name in the place of a path.
    /// CPython marks so the code with which it calls `__init__` when it makes an object (`_Py_InitCleanup`, 3.12+).
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.first_line == 0 && *self.source == *self.name
    }

    /// What has no function in the program, with words of ours in the place of a name.
    pub fn marker(name: Box<str>, path: Arc<str>) -> Self {
        Self { is_marker: true, ..Self::new(name, path, 0, None) }
    }

    /// Whether its name is words of ours, and not from the process.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.is_marker
    }

    /// The line of the instruction at an offset in bytes in the bytecode; `None` for one that has no line. The offset of a
    /// frame that has not executed an instruction is negative (as an `i32`): the function's first line.
    #[must_use]
    pub fn line_at(&self, place: u32) -> Option<u32> {
        match &self.lines {
            Some(lines) if place.cast_signed() >= 0 => lines.at(place),
            _ => (self.first_line != 0).then_some(self.first_line),
        }
    }

    /// Whether it has the line of each instruction; else only its first.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Bytes of heap memory that it uses, without what it can share.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.name.len() + self.lines.as_ref().map_or(0, Lines::heap_bytes)
    }
}
