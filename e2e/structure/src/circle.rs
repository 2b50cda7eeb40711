use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use crate::import::Import;

/// Files that import each other, directly or through others among them.
#[derive(Debug)]
pub struct Circle<'a> {
    /// Each import from one of the files by another of them.
    pub imports: Vec<Import<'a>>,
}

/// Lists the files, and the names that tie them.
impl fmt::Display for Circle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: BTreeSet<&Path> = self.imports.iter().map(|import| import.by).collect();
        write!(f, "{} files import each other in a circle:", files.len())?;
        let mut names: BTreeMap<(&Path, &Path), Vec<&str>> = BTreeMap::new();
        for import in &self.imports {
            names.entry((import.by, import.from)).or_default().push(&import.name);
        }
        for ((by, from), names) in names {
            write!(f, "\n    {} <- {}: {}", by.to_string_lossy(), from.to_string_lossy(), names.join(", "))?;
        }
        Ok(())
    }
}

/// The circles among some imports. Each file is in one circle at most: circles that share a file are one.
pub fn circles<'a>(imports: &BTreeSet<Import<'a>>) -> Vec<Circle<'a>> {
    let mut imported: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for import in imports {
        imported.entry(import.by).or_default().insert(import.from);
    }
    let reached: BTreeMap<&Path, BTreeSet<&Path>> =
        imported.keys().map(|file| (*file, reached_from(file, &imported))).collect();
    let reaches = |from: &Path, to: &Path| reached.get(from).is_some_and(|files| files.contains(to));

    let mut by_first_file: BTreeMap<&Path, Circle<'a>> = BTreeMap::new();
    for import in imports.iter().filter(|import| reaches(import.from, import.by)) {
        let members = reached.keys().filter(|file| reaches(import.by, file) && reaches(file, import.by));
        let Some(first) = members.min() else { continue };
        by_first_file.entry(first).or_insert(Circle { imports: Vec::new() }).imports.push(import.clone());
    }
    by_first_file.into_values().collect()
}

/// The files that a file imports, and that those import, and so on.
fn reached_from<'a>(file: &Path, imported: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![file];
    while let Some(file) = pending.pop() {
        for next in imported.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                pending.push(next);
            }
        }
    }
    reached
}
