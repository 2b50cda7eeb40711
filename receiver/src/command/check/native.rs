//! Which files of a process have symbols.

use std::sync::Arc;

use object::{Object as _, ObjectSection as _, ReadCache};
use serde_json::{Value, json};
use sidewinder_debug_files::{DebugFile, DebugRoots};
use sidewinder_process::{OpenedFile, Pid};
use sidewinder_text::ExternalText;

use crate::symbol_package::{SymbolPackage, advice, packages_of};

/// The sections that name functions of a file itself: symbols, compressed symbols, Go's functions.
const NAMES: [&str; 3] = [".symtab", ".gnu_debugdata", ".gopclntab"];

/// The native code of a process.
#[derive(Debug, Default)]
pub(super) struct NativeReport {
    /// How many files with code could be read.
    pub(super) files: usize,
    /// Those without symbols, in the order of their mappings.
    pub(super) stripped: Vec<StrippedFile>,
}

/// A file whose functions have no names, but for those that it exports.
#[derive(Debug)]
pub(super) struct StrippedFile {
    pub(super) path: ExternalText<'static>,
    build_id: Option<String>,
    package: Option<SymbolPackage>,
}

impl StrippedFile {
    #[cfg(test)]
    pub(super) fn example() -> Self {
        Self {
            path: "/usr/lib/libz.so.1".into(),
            build_id: Some("0aff".to_owned()),
            package: Some(SymbolPackage::Debian("zlib1g".to_owned())),
        }
    }

    pub(super) fn advice(&self) -> String {
        advice(self.package.as_ref(), false)
    }

    /// The path, and the build ID if it has one.
    pub(super) fn label(&self) -> String {
        match &self.build_id {
            Some(id) => format!("{} (build ID {id})", self.path),
            None => self.path.to_string(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "file": self.path.to_lossy(), "build_id": self.build_id, "next": self.advice() })
    }
}

impl NativeReport {
    /// Of the files that a process has mapped, opened.
    pub(super) fn new(pid: Pid, files: &[(Vec<u8>, OpenedFile)]) -> Self {
        let roots = Arc::new(DebugRoots::open::<&std::path::Path>([]));
        let stripped =
            |(path, file): &&(Vec<u8>, OpenedFile)| is_stripped(pid, path, file, &roots) == Some(true);
        let stripped: Vec<_> = files.iter().filter(stripped).collect();
        let texts: Vec<_> = stripped.iter().map(|(path, _)| String::from_utf8_lossy(path)).collect();
        let opened: Vec<_> = texts.iter().zip(&stripped).map(|(path, (_, file))| (&**path, file)).collect();
        let packages = packages_of(&opened);
        let report = |((path, file), package): (&(Vec<u8>, OpenedFile), _)| StrippedFile {
            path: ExternalText::from_bytes(path).into_owned(),
            build_id: sidewinder_process::read_build_ids(file)
                .ok()
                .and_then(|ids| Some(ids.gnu?.to_string())),
            package,
        };
        let stripped = stripped.into_iter().zip(packages).map(report).collect();
        Self { files: files.len(), stripped }
    }
}

/// Whether nothing names the functions of a file; `None` if it can't be read.
fn is_stripped(pid: Pid, path: &[u8], file: &OpenedFile, roots: &Arc<DebugRoots>) -> Option<bool> {
    let cache = ReadCache::new(&**file.file()?);
    let parsed = object::File::parse(&cache).ok()?;
    let has_names = |name: &&str| parsed.section_by_name(name).is_some_and(|section| section.size() > 0);
    if NAMES.iter().any(has_names) {
        return Some(false);
    }
    let debug_file = DebugFile::from_process(pid, path, file.owner(), roots).find(&parsed);
    Some(debug_file.debug_image().is_none())
}
