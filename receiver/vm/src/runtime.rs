//! Language runtimes, and which of them an ELF file contains.
//!
//! A runtime is recognized by symbols that each build of it exports for its embedders, extensions or debuggers, and never by the
//! name of its file: distributions, containers and programs that embed it choose that.

use std::io;

use sidewinder_bpf::WalkedRuntime;
use sidewinder_process::tls::{ElfFile, ElfSymbol};
use sidewinder_process::{ReadAt, read_go_version};

use crate::description::{RuntimeDescription, VersionSymbols, WalkedDescription};
use crate::registry::RUNTIMES;
use crate::unwalked;

/// A runtime that interprets programs, or compiles them while they run, or has compiled them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Runtime {
    /// CPython of any version.
    CPython,
    /// PyPy.
    PyPy,
    /// V8, the JavaScript engine of Node.js, Deno and Electron.
    V8,
    /// A Java virtual machine.
    Jvm,
    /// The common language runtime of .NET, or Mono.
    Dotnet,
    /// The reference implementation of Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Perl.
    Perl,
    /// LuaJIT.
    LuaJit,
    /// The virtual machine of Erlang and Elixir.
    Beam,
    /// Go's runtime.
    Go,
}

impl Runtime {
    /// What is said of it.
    #[must_use]
    pub fn description(self) -> &'static RuntimeDescription {
        RuntimeDescription::of(Some(self))
    }

    /// As what walks find its frames, if they do.
    #[must_use]
    pub fn walked(self) -> Option<WalkedRuntime> {
        WalkedRuntime::ALL.into_iter().find(|walked| Self::from(*walked) == self)
    }
}

impl From<WalkedRuntime> for Runtime {
    fn from(walked: WalkedRuntime) -> Self {
        WalkedDescription::of(walked).runtime
    }
}

impl RuntimeDescription {
    /// What is said of a runtime; of `None`, what is said of those that are not known.
    #[must_use]
    pub fn of(runtime: Option<Runtime>) -> &'static Self {
        RUNTIMES.into_iter().find(|row| row.runtime == runtime).unwrap_or(&unwalked::OTHER)
    }
}

/// The runtimes that a file contains, in the order of their definition, with their versions as far as it
/// says them: that of V8, not of Node.js.
///
/// Costs one pass over the names of the symbols that the file exports, or over those of all symbols of a static program.
///
/// # Errors
/// Any I/O error of the file. A file that is not a 64-bit ELF file of this architecture contains none.
pub fn find_runtimes(file: &impl ReadAt) -> io::Result<Vec<(Runtime, Option<String>)>> {
    let Some(elf) = ElfFile::read(file)? else { return Ok(Vec::new()) };
    let symbols = || RUNTIMES.into_iter().flat_map(|row| row.symbols.iter().map(move |name| (row, *name)));
    let names: Vec<&[u8]> = symbols().map(|(_, name)| name).collect();
    let exported = elf.exported_each(file, &names)?;
    let mut found: Vec<(Runtime, Option<VersionSymbols>)> = symbols()
        .zip(&exported)
        .filter(|(_, symbol)| symbol.is_some())
        .filter_map(|((row, _), _)| Some((row.runtime?, row.version)))
        .collect();
    found.sort_unstable_by_key(|(runtime, _)| *runtime);
    found.dedup_by_key(|(runtime, _)| *runtime);
    let mut runtimes = Vec::new();
    for (runtime, version) in found {
        let version = match version {
            Some(version) => version.read(file, &elf)?,
            None => None,
        };
        runtimes.push((runtime, version));
    }
    if let Some(version) = read_go_version(file)? {
        runtimes.push((Runtime::Go, Some(version.trim_start_matches("go").to_owned())));
    }
    Ok(runtimes)
}

impl VersionSymbols {
    fn read(&self, file: &impl ReadAt, elf: &ElfFile) -> io::Result<Option<String>> {
        let symbols: Option<Vec<ElfSymbol>> = elf.exported_each(file, self.names)?.into_iter().collect();
        let Some(symbols) = symbols else { return Ok(None) };
        let values = symbols.iter().map(|symbol| elf.content(file, symbol.address, self.bytes));
        Ok((self.parse)(&values.collect::<Result<Vec<_>, _>>()?))
    }
}
