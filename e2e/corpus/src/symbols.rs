//! Which files have the names of their functions.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object as _, ObjectSection as _};

/// Each of them names all functions: symbols, Go's table, and compressed symbols (MiniDebugInfo).
const SECTIONS: [&str; 4] = [".symtab", ".gopclntab", ".data.rel.ro.gopclntab", ".gnu_debugdata"];

/// The files that have been looked at.
#[derive(Default, Debug)]
pub(super) struct Symbols {
    known: HashMap<PathBuf, bool>,
}

impl Symbols {
    /// Whether a file has them. One that is gone, or is no ELF file, counts as one that has.
    pub(super) fn are_in(&mut self, file: &Path) -> bool {
        if let Some(known) = self.known.get(file) {
            return *known;
        }
        let found = has_symbols(file).unwrap_or(true);
        self.known.insert(file.to_path_buf(), found);
        found
    }
}

fn has_symbols(path: &Path) -> Option<bool> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let mut names = file.sections().filter_map(|section| section.name().ok().map(str::to_owned));
    Some(names.any(|name| SECTIONS.contains(&&*name)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_stripped_program_has_none_and_what_is_no_program_counts_as_one_that_has() -> anyhow::Result<()> {
        let mut symbols = Symbols::default();
        let program = std::env::current_exe()?;
        assert!(symbols.are_in(&program));
        let folder = tempfile::tempdir()?;
        let stripped = folder.path().join("stripped");
        let strip = Command::new("strip").arg(&program).arg("-o").arg(&stripped).status()?;
        assert!(strip.success() && !symbols.are_in(&stripped));
        assert!(symbols.are_in(Path::new("[vdso]")) && symbols.are_in(Path::new("/etc/hostname")));
        Ok(())
    }
}
