//! Which language runtimes an ELF file contains.
//!
//! A runtime is recognized by symbols that each build of it exports for its embedders, extensions or debuggers, and never by the
//! name of its file: distributions, containers and programs that embed it choose that.

use std::io;

use sidewinder_process::tls::{ElfFile, ElfSymbol};
use sidewinder_process::{ReadAt, read_go_version};

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

/// Symbols of which each build of a runtime exports one.
const SYMBOLS: [(Runtime, &[u8]); 15] = [
    // Since 3.7, and before.
    (Runtime::CPython, b"_PyRuntime"),
    (Runtime::CPython, b"_PyThreadState_Current"),
    (Runtime::PyPy, b"pypy_main_startup"),
    // `v8::Isolate::GetCurrent()`.
    (Runtime::V8, b"_ZN2v87Isolate10GetCurrentEv"),
    (Runtime::Jvm, b"JNI_CreateJavaVM"),
    (Runtime::Dotnet, b"coreclr_initialize"),
    // Of programs that contain the runtime.
    (Runtime::Dotnet, b"DotNetRuntimeInfo"),
    (Runtime::Dotnet, b"mono_jit_init"),
    (Runtime::Ruby, b"ruby_run_node"),
    (Runtime::Php, b"execute_ex"),
    (Runtime::Perl, b"perl_run"),
    (Runtime::LuaJit, b"luaJIT_setmode"),
    (Runtime::Beam, b"beam_normal_exit"),
    (Runtime::Beam, b"erts_frame_layout"),
    // `v8::internal::Version::major_`, which not all builds export.
    (Runtime::V8, V8_MAJOR),
];

pub(crate) const V8_MAJOR: &[u8] = b"_ZN2v88internal7Version6major_E";
pub(crate) const V8_MINOR: &[u8] = b"_ZN2v88internal7Version6minor_E";
const PYTHON_VERSION: &[u8] = b"Py_Version";
/// `const char ruby_version[]`.
const RUBY_VERSION: &[u8] = b"ruby_version";
/// The longest `ruby_version` that is read, in bytes.
const RUBY_VERSION_BYTES: usize = 16;

/// The runtimes that a file contains, in the order of their definition, with their versions as far as it
/// says them: that of V8, not of Node.js.
///
/// Costs one pass over the names of the symbols that the file exports, or over those of all symbols of a static program.
///
/// # Errors
/// Any I/O error of the file. A file that is not a 64-bit ELF file of this architecture contains none.
pub fn find_runtimes(file: &impl ReadAt) -> io::Result<Vec<(Runtime, Option<String>)>> {
    let Some(elf) = ElfFile::read(file)? else { return Ok(Vec::new()) };
    let names = SYMBOLS.map(|(_, name)| name);
    let exported = elf.exported_each(file, &names)?;
    let mut runtimes: Vec<Runtime> =
        SYMBOLS.iter().zip(&exported).filter_map(|((runtime, _), symbol)| symbol.map(|_| *runtime)).collect();
    runtimes.sort_unstable();
    runtimes.dedup();
    let mut found = Vec::new();
    for runtime in runtimes {
        found.push((runtime, version(file, &elf, runtime)?));
    }
    if let Some(version) = read_go_version(file)? {
        found.push((Runtime::Go, Some(version.trim_start_matches("go").to_owned())));
    }
    Ok(found)
}

fn version(file: &impl ReadAt, elf: &ElfFile, runtime: Runtime) -> io::Result<Option<String>> {
    let names: &[&[u8]] = match runtime {
        Runtime::CPython => &[PYTHON_VERSION],
        Runtime::V8 => &[V8_MAJOR, V8_MINOR],
        Runtime::Ruby => &[RUBY_VERSION],
        _ => return Ok(None),
    };
    let symbols: Option<Vec<ElfSymbol>> = elf.exported_each(file, names)?.into_iter().collect();
    let Some(symbols) = symbols else { return Ok(None) };
    let bytes = if runtime == Runtime::Ruby { RUBY_VERSION_BYTES } else { size_of::<u32>() };
    let values: Vec<Vec<u8>> =
        symbols.iter().map(|symbol| elf.content(file, symbol.address, bytes)).collect::<Result<_, _>>()?;
    Ok(match (runtime, &values[..]) {
        // PY_VERSION_HEX.
        (Runtime::CPython, [value]) => {
            value.first_chunk::<4>().map(|[_, micro, minor, major]| format!("{major}.{minor}.{micro}"))
        }
        (Runtime::V8, [major, minor]) => match (major.first_chunk(), minor.first_chunk()) {
            (Some(major), Some(minor)) => {
                Some(format!("{}.{}", u32::from_le_bytes(*major), u32::from_le_bytes(*minor)))
            }
            _ => None,
        },
        (Runtime::Ruby, [text]) => {
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            let is_version = !text.is_empty() && text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
            is_version.then(|| String::from_utf8_lossy(text).into_owned())
        }
        _ => None,
    })
}
