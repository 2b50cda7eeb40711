//! What is said of a language runtime, to people and to programs, and by what files with it are known.

use std::io;

use sidewinder_bpf::VmForm;
use sidewinder_process::ReadAt;
use sidewinder_process::tls::{ElfFile, ElfSymbol};
use sidewinder_profile::FrameType;

#[cfg(doc)]
use crate::PthreadLayout;
use crate::inspection::Unsupported;
use crate::language_runtime::DetectResult;
use crate::runtime::Runtime;

/// What Sidewinder reads of a language runtime, and what users have to do for the rest.
#[derive(Debug)]
pub struct RuntimeDescription {
    /// `None`: runtimes that are not known, and generate code.
    pub runtime: Option<Runtime>,
    /// A stable ID, for programs.
    pub id: &'static str,
    /// Its name.
    pub label: &'static str,
    /// Its name, with the versions that are supported and the programs that contain it.
    pub name: &'static str,
    /// How the frames of its functions are found.
    pub frames: &'static str,
    /// How the names of its functions are found.
    pub names: &'static str,
    /// What makes whole stacks of it, as an instruction. `None`: nothing has to be done, or can be.
    pub frames_advice: Option<&'static str>,
    /// What gives names to the code that it generates, as an instruction. `PID` stands for the process. `None`: it generates
    /// no code, or nothing can give it names.
    pub advice: Option<&'static str>,
    /// The programs that all functions are read of, if others with the same runtime have only what it publishes.
    pub parts: Option<RuntimeParts>,
    /// The type of its frames.
    pub frame_type: FrameType,
    /// Symbols of which each build of it exports one.
    pub symbols: &'static [&'static [u8]],
    /// How a file says its version, if it does.
    pub version: Option<VersionSymbols>,
}

/// The programs with a runtime, by what is read of them.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeParts {
    /// Those whose functions are all read, without any switch.
    pub complete: &'static str,
    /// The others.
    pub others: &'static str,
}

/// Constants by which a file says the version of its runtime.
#[derive(Clone, Copy, Debug)]
pub struct VersionSymbols {
    /// Their symbols, all of which are needed.
    pub names: &'static [&'static [u8]],
    /// The bytes that are read of each.
    pub bytes: usize,
    /// The version, by these bytes; `None` if they say none.
    pub parse: fn(&[Vec<u8>]) -> Option<String>,
}

/// What is said of a runtime whose frames walks find, and how it is found.
#[derive(Debug)]
pub struct WalkedDescription {
    /// Its key in the configuration, in the group `interpreters`.
    pub key: &'static str,
    /// The language of its functions.
    pub language: &'static str,
    /// What a function is, by how it is executed.
    pub function: fn(VmForm) -> &'static str,
    /// Reads a file; `None` if it doesn't contain the runtime, or a build that is not supported.
    pub detect: fn(&dyn ReadAt) -> DetectResult,
    /// Whether walks find its frames on this architecture.
    pub is_walked_here: bool,
    /// Whether the layout of the C library's threads is needed to locate it ([`PthreadLayout`]).
    pub needs_pthread: bool,
    /// What is said of a build that is not supported; `None`: what its description says of the code that it generates.
    pub unsupported: Option<Unsupported>,
}

/// How names are found of code that a runtime generates.
pub const PUBLISHED: &str = "from a perf map or jitdump, if the runtime writes one";
/// The frames or names of a runtime whose own functions are not visible.
pub const INTERPRETER_ONLY: &str = "only the interpreter's";
/// The frames of a runtime whose generated code keeps frame pointers.
pub const BY_FRAME_POINTER: &str = "generated code, by its frame pointers";

impl RuntimeDescription {
    /// Whether all of its functions are visible without any switch.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.advice.is_none() && self.frames_advice.is_none() && !self.is_interpreter_only()
    }

    /// Whether functions that it interprets are not visible.
    #[must_use]
    pub fn is_interpreter_only(&self) -> bool {
        self.frames == INTERPRETER_ONLY
    }
}

impl WalkedDescription {
    /// The name of a function that could not be read.
    #[must_use]
    pub fn unknown_function(&self, form: VmForm) -> String {
        format!("[unknown {}]", (self.function)(form))
    }
}

impl VersionSymbols {
    /// The version that a file says; `None` if it lacks the symbols or their values say none.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(&self, file: &impl ReadAt, elf: &ElfFile) -> io::Result<Option<String>> {
        let symbols: Option<Vec<ElfSymbol>> = elf.exported_each(file, self.names)?.into_iter().collect();
        let Some(symbols) = symbols else { return Ok(None) };
        let values = symbols.iter().map(|symbol| elf.content(file, symbol.address, self.bytes));
        Ok((self.parse)(&values.collect::<Result<Vec<_>, _>>()?))
    }
}
