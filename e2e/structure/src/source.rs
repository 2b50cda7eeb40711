use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, Item, ItemMod, ItemUse, Lit, Macro, Meta, UseTree, Visibility};

/// The modules of one crate, as its source declares them.
pub struct Crate {
    /// Its source files; the first one is its root.
    pub(crate) files: Vec<PathBuf>,
    /// Its modules; the first one is its root.
    pub(crate) modules: Vec<Module>,
}

/// An index in [`Crate::files`].
pub(crate) type FileId = usize;
/// An index in [`Crate::modules`].
pub(crate) type ModuleId = usize;

/// A module, with the names in its text. Modules inside a file have that file.
pub(crate) struct Module {
    pub(crate) file: FileId,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// The names of the items that it defines.
    pub(crate) items: BTreeSet<String>,
    pub(crate) uses: Vec<Use>,
    /// Paths of several segments outside of `use` declarations.
    pub(crate) paths: BTreeSet<Vec<String>>,
    /// All identifiers outside of `use` declarations.
    pub(crate) words: BTreeSet<String>,
}

/// One name that a `use` declaration brings into scope.
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    /// What it is called here; `None` for all names of `path`.
    pub(crate) name: Option<String>,
    /// Whether other modules are given the name too.
    pub(crate) is_public: bool,
}

/// Where the source text of files comes from.
type ReadFile<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Crate {
    /// Reads a crate, from its root file on. `read_file` returns the text of a file, or nothing if there is none.
    pub fn read(root: &Path, read_file: ReadFile<'_>) -> Result<Self> {
        let mut source = Self { files: Vec::new(), modules: Vec::new() };
        source.add_file(root, root.parent().unwrap_or(Path::new("")), None, read_file)?;
        Ok(source)
    }

    /// Reads the file of a module, and of the modules below it. `folder` is where the files of those are.
    fn add_file(
        &mut self,
        path: &Path,
        folder: &Path,
        parent: Option<ModuleId>,
        read_file: ReadFile<'_>,
    ) -> Result<ModuleId> {
        let text = read_file(path).with_context(|| format!("no file {path:?}"))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("parse {path:?}"))?;
        self.files.push(path.to_path_buf());
        self.add_module(self.files.len() - 1, folder, parent, &syntax.items, read_file)
    }

    fn add_module(
        &mut self,
        file: FileId,
        folder: &Path,
        parent: Option<ModuleId>,
        items: &[Item],
        read_file: ReadFile<'_>,
    ) -> Result<ModuleId> {
        let id = self.modules.len();
        let mut names = Names::default();
        items.iter().for_each(|item| names.add(item));
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            items: names.items,
            uses: names.uses,
            paths: names.paths,
            words: names.words,
        });
        for item in items {
            let Item::Mod(module) = item else { continue };
            if is_for_tests(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let child_folder = folder.join(&name);
            let child = match &module.content {
                Some((_, items)) => self.add_module(file, &child_folder, Some(id), items, read_file)?,
                None => {
                    let path = module_file(module, folder, &self.files[file], read_file)?;
                    self.add_file(&path, &child_folder, Some(id), read_file)?
                }
            };
            self.modules[id].children.insert(name, child);
        }
        Ok(id)
    }
}

/// The file of a module that is declared without its content, in `declared_in`.
fn module_file(
    module: &ItemMod,
    folder: &Path,
    declared_in: &Path,
    read_file: ReadFile<'_>,
) -> Result<PathBuf> {
    let name = module.ident.to_string();
    let given = module.attrs.iter().find_map(given_path);
    let candidates = match given {
        Some(given) => vec![declared_in.with_file_name(given)],
        None => vec![folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
    };
    candidates
        .into_iter()
        .find(|path| read_file(path).is_some())
        .with_context(|| format!("{folder:?} has no file of module {name}"))
}

/// What `#[path = "..."]` says.
fn given_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(given) = &attribute.meta else { return None };
    match &given.value {
        Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) if given.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

/// Whether an item is compiled for tests alone.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition == "test"
                        || condition.starts_with("any (test ,")
                        || condition.starts_with("all (test ,")
                })
    })
}

/// The names in the text of one module.
#[derive(Default)]
struct Names {
    items: BTreeSet<String>,
    uses: Vec<Use>,
    paths: BTreeSet<Vec<String>>,
    words: BTreeSet<String>,
}

impl Names {
    fn add(&mut self, item: &Item) {
        if !is_for_tests(item_attributes(item)) {
            self.items.extend(item_name(item).map(ToString::to_string));
            self.visit_item(item);
        }
    }

    fn add_use_tree(&mut self, tree: &UseTree, path: &mut Vec<String>, is_public: bool) {
        let mut add = |path: Vec<String>, name| self.uses.push(Use { path, name, is_public });
        match tree {
            UseTree::Path(step) => {
                path.push(step.ident.to_string());
                self.add_use_tree(&step.tree, path, is_public);
                path.pop();
            }
            UseTree::Name(name) if name.ident == "self" => add(path.clone(), path.last().cloned()),
            UseTree::Name(name) => add(extended(path, &name.ident), Some(name.ident.to_string())),
            UseTree::Rename(rename) if rename.ident == "self" => {
                add(path.clone(), Some(rename.rename.to_string()));
            }
            UseTree::Rename(rename) => add(extended(path, &rename.ident), Some(rename.rename.to_string())),
            UseTree::Glob(_) => add(path.clone(), None),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use_tree(tree, path, is_public));
            }
        }
    }

    /// The words and paths of a macro's tokens, which have no syntax of their own.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    self.words.insert(word.to_string());
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.add_path(std::mem::take(&mut path));
                    self.add_tokens(group.stream());
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.add_path(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.add_path(path);
    }

    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.paths.insert(path);
        }
    }
}

fn extended(path: &[String], last: &Ident) -> Vec<String> {
    path.iter().cloned().chain([last.to_string()]).collect()
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item_attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// Modules have names of their own.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, declaration: &'ast ItemUse) {
        let is_public = !matches!(declaration.vis, Visibility::Inherited);
        self.add_use_tree(&declaration.tree, &mut Vec::new(), is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        visit::visit_macro(self, called);
        self.add_tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_ident(&mut self, word: &'ast Ident) {
        self.words.insert(word.to_string());
    }
}

fn item_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
