//! Many programs, each unlike the others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _};

/// Copies of Python, each another program to whoever goes by build IDs.
///
/// # Errors
/// When there is no Python, or it has no build ID, or the copies can't be written.
pub fn copies_of_python(folder: &Path, copies: u8) -> Result<Vec<String>> {
    copies_of(Path::new("/usr/bin/python3"), folder, copies)
}

/// Copies of Node.js, a program of some hundred MB, likewise.
///
/// # Errors
/// Likewise.
pub fn copies_of_node(folder: &Path, copies: u8) -> Result<Vec<String>> {
    let found = Command::new("node").args(["-p", "process.execPath"]).output().context("cannot run node")?;
    copies_of(Path::new(std::str::from_utf8(&found.stdout)?.trim()), folder, copies)
}

fn copies_of(program: &Path, folder: &Path, copies: u8) -> Result<Vec<String>> {
    let mut content = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let file = object::File::parse(&*content)?;
    let note = file.section_by_name(".note.gnu.build-id").and_then(|section| section.file_range());
    let (start, size) = note.with_context(|| format!("{} has no build ID", program.display()))?;
    let last_byte = usize::try_from(start + size - 1)?;
    let name = program.file_name().context("no file name")?.display().to_string();
    (0..copies)
        .map(|number| {
            *content.get_mut(last_byte).context("the build ID lies outside of the file")? = number;
            let path = folder.join(format!("{name}-{number}"));
            fs::write(&path, &content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            Ok(path.display().to_string())
        })
        .collect()
}
