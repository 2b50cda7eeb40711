//! Debian's kernels, and one of Ubuntu's.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sidewinder_e2e_debian::archive::Archive;

/// Which kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// That of a suite.
    Of(&'static str),
    /// The newest of all suites.
    Newest,
}

impl Wanted {
    /// As the command line calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Of(suite) => suite,
            Self::Newest => "newest",
        }
    }
}

/// Whose package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Distribution {
    Debian,
    /// The signed image is one for firmware, with the kernel in it; what was signed is a package beside it.
    Ubuntu,
}

/// A package that depends on a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) wanted: Wanted,
    pub(crate) distribution: Distribution,
}

impl Package {
    /// The kernel for guests: small, and with all that a guest needs built in.
    pub(crate) fn amd64(wanted: Wanted) -> Self {
        Self { name: "linux-image-cloud-amd64", wanted, distribution: Distribution::Debian }
    }
}

/// The compressed image of a kernel.
///
/// # Errors
/// When the archive doesn't have it, or hands it out in a form that isn't known.
pub(crate) fn image(archive: &Archive, package: Package) -> Result<PathBuf> {
    let Package { name, wanted, distribution } = package;
    let version = match wanted {
        Wanted::Of(suite) => archive.version(name, Some(suite))?,
        Wanted::Newest => archive.version(name, None)?,
    };
    let package = archive.dependency(&format!("{name}={version}"), "linux-image-")?;
    // Since Linux 7 the image itself is in a package of its own.
    let package = match distribution {
        Distribution::Debian => archive.dependency(&package, "linux-binary-").unwrap_or(package),
        Distribution::Ubuntu => package.replacen("linux-image-", "linux-image-unsigned-", 1),
    };
    let folder = archive.folder().join("kernels").join(&package);
    if image_in(&folder).is_none() {
        archive.unpack(&package, &folder)?;
    }
    let image = image_in(&folder).with_context(|| format!("{package} has no vmlinuz"))?;
    unpacked(&image).with_context(|| image.display().to_string())
}

/// The kernel itself, if the image is one that unpacks itself where there is firmware, as which QEMU starts none of arm64
/// (`drivers/firmware/efi/libstub/zboot-header.S`). It is kept beside it.
fn unpacked(image: &Path) -> Result<PathBuf> {
    const MAGIC: &[u8] = b"zimg";
    const COMPRESSION: &[u8] = b"zstd\0";
    let bytes = fs::read(image)?;
    if bytes.get(4..8) != Some(MAGIC) {
        return Ok(image.to_owned());
    }
    let name = image.file_name().context("it has no name")?.to_string_lossy().replace("vmlinuz", "Image");
    let unpacked = image.with_file_name(name);
    if !unpacked.is_file() {
        let number = |at: usize| -> Option<usize> {
            usize::try_from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)).ok()
        };
        let payload =
            number(8).zip(number(12)).and_then(|(start, size)| bytes.get(start..start.checked_add(size)?));
        let is_known = bytes.get(24..).is_some_and(|name| name.starts_with(COMPRESSION));
        let payload = payload.filter(|_| is_known).context("compressed in a form that isn't known")?;
        // Behind the compressed kernel is its size.
        let mut kernel = Vec::new();
        let mut decoder = zstd::Decoder::new(payload)?.single_frame();
        decoder.read_to_end(&mut kernel)?;
        fs::write(&unpacked, kernel)?;
    }
    Ok(unpacked)
}

fn image_in(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else if entry.file_name().as_encoded_bytes().starts_with(b"vmlinuz") {
                return Some(entry.path());
            }
        }
    }
    None
}
