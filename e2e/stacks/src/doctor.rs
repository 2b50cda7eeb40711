//! Plants a wrong row: what has to be found, if anything is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};
use sidewinder_e2e_judge::elf::Elf;

/// A program that is not what it seems: the profiler reads it, gdb and framehop read the original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doctored {
    /// What runs.
    pub path: PathBuf,
    /// What it was made of.
    pub original: PathBuf,
}

/// `DW_CFA_def_cfa_offset`, which a small number follows.
const DEF_CFA_OFFSET: u8 = 0x0e;
/// By how much the planted frame is too large.
const MISSTATED_BYTES: u8 = 8;

impl Doctored {
    /// A copy of a program whose unwind data misstate the size of a function's frame around its first call.
    ///
    /// # Errors
    /// When there is no such function, or its unwind data have no such row.
    pub fn copy(original: &Path, function: &str, path: PathBuf) -> Result<Self> {
        let (bytes, elf) = (fs::read(original)?, Elf::read(original)?);
        let (start, size, _) =
            elf.functions().find(|(.., name)| *name == function).context("no such function")?;
        let call =
            (start..start + size).find(|svma| elf.follows_call(svma + 1)).context("it calls nobody")?;
        let described = elf.description_bytes(call).context("it has no unwind data")?;
        let section = object::File::parse(&*bytes)?;
        let section = section.section_by_name(".eh_frame").and_then(|section| section.file_range());
        let section_start = usize::try_from(section.context("no .eh_frame")?.0)?;
        for at in described.map(|at| section_start + at) {
            let Some(&[operation, offset]) = bytes.get(at..at + 2) else { continue };
            if operation != DEF_CFA_OFFSET || offset > i8::MAX.cast_unsigned() - MISSTATED_BYTES {
                continue;
            }
            let mut copy = bytes.clone();
            copy[at + 1] = offset + MISSTATED_BYTES;
            fs::write(&path, copy)?;
            if Elf::read(&path)?.rule_at(call) != elf.rule_at(call) {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                return Ok(Self { path, original: original.to_path_buf() });
            }
        }
        bail!("no row of {function} states the size of its frame")
    }
}
