use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{Crate, FileId, Module, ModuleId, Use};

/// A name that one file takes from another of the same crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import<'a> {
    /// The file that uses the name.
    pub by: &'a Path,
    /// The file that defines it.
    pub from: &'a Path,
    /// The name.
    pub name: String,
}

/// What the files of a crate import from each other. A `pub use` that only passes a name on imports nothing; what comes through
/// it is imported from the file that defines it.
pub fn imports(source: &Crate) -> BTreeSet<Import<'_>> {
    let mut imports = BTreeSet::new();
    for (id, module) in source.modules.iter().enumerate() {
        let resolve = |path: Vec<String>| source.resolve(id, &path, MAX_RE_EXPORTS);
        for target in used_paths(source, id, module).flat_map(resolve) {
            if let Target::Item { file, name } = target
                && file != module.file
            {
                imports.insert(Import { by: &source.files[module.file], from: &source.files[file], name });
            }
        }
    }
    imports
}

/// How many `use` declarations a name is followed through: more than any crate has, and an end for those that go in a circle.
const MAX_RE_EXPORTS: u32 = 16;

/// The paths that a module's own code uses, those behind its globs included.
fn used_paths<'a>(
    source: &'a Crate,
    id: ModuleId,
    module: &'a Module,
) -> impl Iterator<Item = Vec<String>> + 'a {
    let named = module.uses.iter().filter_map(|declaration| {
        let name = declaration.name.as_ref()?;
        (!declaration.is_public || module.words.contains(name)).then(|| declaration.path.clone())
    });
    let globs = module.uses.iter().filter(|declaration| declaration.name.is_none() && !declaration.is_public);
    let behind_globs = globs.flat_map(move |declaration| {
        let mut paths = Vec::new();
        for target in source.resolve(id, &declaration.path, MAX_RE_EXPORTS) {
            match target {
                Target::Module(from) => {
                    let used =
                        source.modules[from].names_for_others().filter(|name| module.words.contains(*name));
                    paths.extend(used.map(|name| [declaration.path.clone(), vec![name.clone()]].concat()));
                }
                // The variants of an enumeration: what is imported is the enumeration.
                Target::Item { .. } => paths.push(declaration.path.clone()),
            }
        }
        paths
    });
    named.chain(behind_globs).chain(module.paths.iter().cloned())
}

/// What a path names.
enum Target {
    Module(ModuleId),
    Item { file: FileId, name: String },
}

impl Module {
    fn names_for_others(&self) -> impl Iterator<Item = &String> {
        self.items.iter().chain(self.uses.iter().filter_map(|declaration| declaration.name.as_ref()))
    }
}

impl Crate {
    /// What a path in a module names: nothing if it leaves the crate, and several things if names have one meaning on each
    /// architecture.
    fn resolve(&self, module: ModuleId, path: &[String], re_exports_left: u32) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let start = match first.as_str() {
            "crate" => vec![Target::Module(0)],
            "self" => vec![Target::Module(module)],
            "super" => self.parent(module),
            name => self.lookup(module, name, re_exports_left),
        };
        rest.iter().fold(start, |targets, segment| {
            let step = |target| match target {
                Target::Module(module) if segment == "super" => self.parent(module),
                Target::Module(module) => self.lookup(module, segment, re_exports_left),
                item @ Target::Item { .. } => vec![item],
            };
            targets.into_iter().flat_map(step).collect()
        })
    }

    fn parent(&self, module: ModuleId) -> Vec<Target> {
        self.modules[module].parent.map(Target::Module).into_iter().collect()
    }

    /// What a name means in a module: one of its items, a module below it, or what it imports under that name.
    fn lookup(&self, id: ModuleId, name: &str, re_exports_left: u32) -> Vec<Target> {
        let module = &self.modules[id];
        if let Some(child) = module.children.get(name) {
            return vec![Target::Module(*child)];
        }
        if module.items.contains(name) {
            return vec![Target::Item { file: module.file, name: name.to_owned() }];
        }
        let Some(left) = re_exports_left.checked_sub(1) else { return Vec::new() };
        let named = |declaration: &&Use| declaration.name.as_deref() == Some(name);
        let found: Vec<Target> = module
            .uses
            .iter()
            .filter(named)
            .flat_map(|declaration| self.resolve(id, &declaration.path, left))
            .collect();
        if !found.is_empty() {
            return found;
        }
        let globs = module.uses.iter().filter(|declaration| declaration.name.is_none());
        let modules =
            globs.flat_map(|declaration| self.resolve(id, &declaration.path, left)).filter_map(|target| {
                match target {
                    Target::Module(from) => Some(from),
                    Target::Item { .. } => None,
                }
            });
        modules.flat_map(|from| self.lookup(from, name, left)).collect()
    }
}
