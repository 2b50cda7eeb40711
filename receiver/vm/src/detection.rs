//! Which runtimes an ELF file contains.
//!
//! A runtime is recognized by symbols that each build of it exports for its embedders, extensions or debuggers, and never by the
//! name of its file: distributions, containers and programs that embed it choose that.

use std::io;

use sidewinder_bpf::WalkedRuntime;
use sidewinder_process::tls::ElfFile;
use sidewinder_process::{ReadAt, read_go_version};
use sidewinder_vm_runtime::{DetectResult, Runtime, VersionSymbols};

use crate::registry::{RUNTIMES, describe_walked};
use crate::runtime_set::RuntimeSet;

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

/// The runtime that a file contains, of those `wanted` whose frames are walked on this architecture; `None` if it contains none, or
/// one that is not supported.
///
/// # Errors
/// Any I/O error of the file.
pub fn detect(file: &impl ReadAt, wanted: RuntimeSet) -> DetectResult {
    let wanted = wanted.and(RuntimeSet::WALKED);
    for runtime in WalkedRuntime::ALL.into_iter().filter(|runtime| wanted.contains(*runtime)) {
        if let Some(found) = (describe_walked(runtime).detect)(file)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
