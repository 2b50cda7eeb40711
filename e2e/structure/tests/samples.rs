//! What counts as an import, and as a circle, by samples of source.

use std::collections::BTreeMap;
use std::path::Path;

use sidewinder_e2e_structure::{Crate, circles, imports};

/// Sources by path, of a crate whose root is `lib.rs`.
type Sources = BTreeMap<&'static str, &'static str>;

fn read(sources: &Sources) -> Crate {
    let read_file = |path: &Path| sources.get(path.to_str()?).map(ToString::to_string);
    Crate::read(Path::new("lib.rs"), &read_file).expect("the samples are Rust")
}

/// Each import as `FILE <- FILE: NAME`.
fn imports_of(sources: &Sources) -> Vec<String> {
    let source = read(sources);
    let text = |path: &Path| path.display().to_string();
    imports(&source)
        .iter()
        .map(|import| format!("{} <- {}: {}", text(import.by), text(import.from), import.name))
        .collect()
}

fn circles_of(sources: &Sources) -> Vec<String> {
    circles(&imports(&read(sources))).iter().map(ToString::to_string).collect()
}

#[test]
fn files_that_import_each_other_are_a_circle_with_the_names_that_tie_them() {
    let sources = Sources::from([
        ("lib.rs", "mod first; mod second; mod third;"),
        ("first.rs", "use crate::second::Second; pub struct First;"),
        ("second.rs", "use crate::third::{Third, three}; pub struct Second;"),
        ("third.rs", "pub struct Third; pub fn three() -> super::first::First { todo!() }"),
    ]);
    let expected = "3 files import each other in a circle:\
                    \n    first.rs <- second.rs: Second\
                    \n    second.rs <- third.rs: Third, three\
                    \n    third.rs <- first.rs: First";
    assert_eq!(circles_of(&sources), [expected]);
}

#[test]
fn a_child_and_its_parent_that_use_each_other_are_a_circle() {
    let sources = Sources::from([
        ("lib.rs", "mod parent;"),
        ("parent.rs", "mod child; pub struct Shared; fn use_it() { child::help(); }"),
        ("parent/child.rs", "pub fn help() -> super::Shared { super::Shared }"),
    ]);
    assert_eq!(
        imports_of(&sources),
        ["parent/child.rs <- parent.rs: Shared", "parent.rs <- parent/child.rs: help"]
    );
    assert_eq!(circles_of(&sources).len(), 1);
}

#[test]
fn a_name_that_is_only_passed_on_is_no_import() {
    let sources = Sources::from([
        ("lib.rs", "mod parent; pub use parent::Help;"),
        ("parent.rs", "mod child; pub use self::child::Help; pub struct Shared;"),
        ("parent/child.rs", "use super::Shared; pub struct Help(Shared);"),
    ]);
    assert_eq!(imports_of(&sources), ["parent/child.rs <- parent.rs: Shared"]);
}

#[test]
fn a_name_that_comes_through_another_file_is_imported_from_where_it_is_defined() {
    let sources = Sources::from([
        ("lib.rs", "mod first; mod second; pub use first::First; pub use second::*;"),
        ("first.rs", "use crate::Second; pub struct First;"),
        ("second.rs", "use crate::First; pub struct Second(First);"),
    ]);
    assert_eq!(imports_of(&sources), ["first.rs <- second.rs: Second", "second.rs <- first.rs: First"]);
}

#[test]
fn names_behind_a_glob_and_in_macros_are_imports() {
    let sources = Sources::from([
        ("lib.rs", "mod names; mod user; mod teller;"),
        ("names.rs", "pub struct Used; pub struct Unused; pub const WORD: &str = \"\";"),
        ("user.rs", "use crate::names::*; fn take(_: Used) {}"),
        ("teller.rs", "fn tell() { println!(\"{}\", crate::names::WORD); }"),
    ]);
    assert_eq!(imports_of(&sources), ["teller.rs <- names.rs: WORD", "user.rs <- names.rs: Used"]);
}

#[test]
fn code_of_tests_imports_nothing() {
    let sources = Sources::from([
        ("lib.rs", "mod first; mod second;"),
        (
            "first.rs",
            "pub struct First; #[cfg(test)] mod tests { use crate::second::Second; fn take(_: Second) {} }",
        ),
        ("second.rs", "use crate::first::First; pub struct Second(First);"),
    ]);
    assert_eq!(imports_of(&sources), ["second.rs <- first.rs: First"]);
}
