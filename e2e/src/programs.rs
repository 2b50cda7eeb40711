//! Many programs, each unlike the others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use object::{Object as _, ObjectSection as _};

const PYTHON: &str = "/usr/bin/python3";

/// Copies of Python, each another program to whoever goes by build IDs.
///
/// # Errors
/// When there is no Python, or it has no build ID, or the copies can't be written.
pub fn copies_of_python(folder: &Path, copies: u8) -> Result<Vec<String>> {
    let original = fs::read(PYTHON).with_context(|| format!("cannot read {PYTHON}"))?;
    let file = object::File::parse(&*original)?;
    let note = file.section_by_name(".note.gnu.build-id").and_then(|section| section.file_range());
    let (start, size) = note.context("python has no build ID")?;
    let last_byte = usize::try_from(start + size - 1)?;
    (0..copies)
        .map(|number| {
            let mut copy = original.clone();
            *copy.get_mut(last_byte).context("the build ID lies outside of the file")? = number;
            let path = folder.join(format!("python-{number}"));
            fs::write(&path, copy)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            Ok(path.display().to_string())
        })
        .collect()
}
