//! Names from the companion files of a binary.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryFiles, BinaryId, Image, Lookup, UnnamedReason};

use crate::lines::{runs, symbolizer};

const SOURCE: &str = r#"
#include <stdlib.h>
static int __attribute__((noinline)) hidden(int x) { return x * 7 + rand(); }
int exported(int x) { return hidden(x) + 1; }
int main(int count, char **texts) { (void)texts; return exported(count); }
"#;

/// A program stripped except for `kept`, and the address of its local function.
fn program(kept: &[&str]) -> Option<(tempfile::TempDir, PathBuf, Svma)> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("p.c"), SOURCE).unwrap();
    if !runs(folder.path(), &["gcc", "-g", "-O1", "-rdynamic", "-o", "p", "p.c"]) {
        return None;
    }
    let bytes = std::fs::read(at("p")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let hidden = file.symbols().find(|symbol| symbol.name() == Ok("hidden")).unwrap().address();
    runs(folder.path(), &["objcopy", "--only-keep-debug", "p", "p.debug"]);
    // What distributions put into .gnu_debugdata: functions that aren't exported.
    runs(folder.path(), &["objcopy", "-S", "--keep-symbol=hidden", "p", "mini"]);
    let has_xz = Command::new("xz").args(["-k", "mini"]).current_dir(folder.path()).status();
    if !has_xz.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: xz is not installed");
        return None;
    }
    runs(folder.path(), &["strip", "p"]);
    if !kept.is_empty() {
        runs(folder.path(), &[&["objcopy"], kept, &["p"]].concat());
    }
    let program = at("p");
    Some((folder, program, Svma(hidden)))
}

struct Pair<'a>(&'a Path, Option<PathBuf>);

impl BinaryFiles for &Pair<'_> {
    fn content(&self) -> io::Result<Image> {
        Ok(File::open(self.0)?.into())
    }

    fn debug_file(&self) -> Option<Image> {
        Some(File::open(self.1.as_ref()?).ok()?.into())
    }
}

/// Name, file name and line of an address.
fn named(pair: &Pair<'_>, svma: Svma) -> Result<(String, Option<String>, u32), UnnamedReason> {
    match symbolizer(8 << 20).name(BinaryId(1), pair, svma) {
        Lookup::Unnamed { why, .. } => Err(why),
        Lookup::Named(frames) => {
            let frame = &frames[0];
            let file = frame.path.as_ref().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
            Ok((frame.name.system_name.to_string(), file, frame.line))
        }
    }
}

#[test]
fn a_stripped_program_has_no_name_for_what_it_does_not_export() {
    let Some((_folder, program, hidden)) = program(&[]) else { return };
    assert_eq!(named(&Pair(&program, None), hidden), Err(UnnamedReason::NotCovered));
}

#[test]
fn local_functions_are_named_by_mini_debug_info() {
    let kept = ["--add-section", ".gnu_debugdata=mini.xz"];
    let Some((_folder, program, hidden)) = program(&kept) else { return };
    assert_eq!(named(&Pair(&program, None), hidden), Ok(("hidden".to_owned(), None, 0)));
}

#[test]
fn the_debug_file_tells_names_and_lines() {
    let Some((folder, program, hidden)) = program(&[]) else { return };
    let pair = Pair(&program, Some(folder.path().join("p.debug")));
    assert_eq!(named(&pair, hidden), Ok(("hidden".to_owned(), Some("p.c".to_owned()), 3)));
}

#[test]
fn a_broken_debug_file_is_as_good_as_none() {
    let kept = ["--add-section", ".gnu_debugdata=mini.xz"];
    let Some((folder, program, hidden)) = program(&kept) else { return };
    let debug = folder.path().join("p.debug");
    let whole = std::fs::read(&debug).unwrap();
    for bytes in [&b"no ELF file"[..], &whole[..100], &whole[..whole.len() / 2]] {
        std::fs::write(&debug, bytes).unwrap();
        let pair = Pair(&program, Some(debug.clone()));
        assert_eq!(named(&pair, hidden).map(|(name, ..)| name), Ok("hidden".to_owned()));
    }
}

#[test]
fn a_decompression_bomb_is_not_unpacked() {
    let kept = ["--add-section", ".gnu_debugdata=mini.xz"];
    let Some((folder, program, hidden)) = program(&kept) else { return };
    std::fs::write(folder.path().join("zeros"), vec![0; 256 << 20]).unwrap();
    runs(folder.path(), &["xz", "-0", "zeros"]);
    runs(folder.path(), &["objcopy", "--update-section", ".gnu_debugdata=zeros.xz", "p"]);
    let mut symbolizer = symbolizer(8 << 20);
    let lookup = symbolizer.name(BinaryId(1), &Pair(&program, None), hidden);
    assert!(matches!(lookup, Lookup::Unnamed { why: UnnamedReason::NotCovered, .. }), "{lookup:?}");
    assert!(symbolizer.held_bytes() < 1 << 20);
}
