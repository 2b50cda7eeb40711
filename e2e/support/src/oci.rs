//! The container image that `make image` writes, read as a registry's client reads it: every blob has the size and the digest that
//! name it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::getxattr;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::run;

/// The archive in the folder that `make image` writes.
pub const ARCHIVE: &str = "sidewinder.oci.tar";

/// An OCI layout: an index of images, and their blobs.
#[derive(Debug)]
pub struct Layout {
    folder: TempDir,
    /// The digest of the index.
    pub digest: String,
    /// The index.
    pub index: Value,
}

/// The image of one architecture.
#[derive(Debug)]
pub struct Image<'layout> {
    /// The architecture that the index states.
    pub architecture: String,
    /// The manifest.
    pub manifest: Value,
    /// The configuration that the manifest names.
    pub config: Value,
    layout: &'layout Layout,
}

impl Layout {
    /// Reads the archive of a folder that `make image` wrote.
    ///
    /// # Errors
    /// When it can't be read, or is no such layout.
    pub fn open(built: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        run(Command::new("tar").arg("-xf").arg(built.join(ARCHIVE)).arg("-C").arg(folder.path()))?;
        let top: Value = serde_json::from_slice(&fs::read(folder.path().join("index.json"))?)?;
        let descriptor = &top["manifests"][0];
        let digest = descriptor["digest"].as_str().context("no digest of an index")?.to_owned();
        let mut layout = Self { folder, digest, index: Value::Null };
        layout.index = layout.document(descriptor)?;
        Ok(layout)
    }

    /// The images, in the order of the index.
    ///
    /// # Errors
    /// When a blob is missing, or is not what its descriptor says.
    pub fn images(&self) -> Result<Vec<Image<'_>>> {
        let descriptors = self.index["manifests"].as_array().context("the index names no images")?;
        descriptors.iter().map(|descriptor| self.image(descriptor)).collect()
    }

    fn image(&self, descriptor: &Value) -> Result<Image<'_>> {
        let architecture = descriptor["platform"]["architecture"].as_str().context("no architecture")?;
        let manifest = self.document(descriptor)?;
        let config = self.document(&manifest["config"])?;
        Ok(Image { architecture: architecture.to_owned(), manifest, config, layout: self })
    }

    fn document(&self, descriptor: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.blob(descriptor)?)?)?)
    }

    /// The file of a blob.
    fn blob(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().context("no digest")?;
        let file = self.folder.path().join("blobs").join(digest.replace(':', "/"));
        let size = fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        ensure!(descriptor["size"] == size, "{digest} has {size} bytes, and not those of {descriptor}");
        let found = sha256("cat", &file)?;
        ensure!(found == digest, "{digest} has the digest {found}");
        Ok(file)
    }
}

impl Image<'_> {
    /// The sizes of the layers in the archive, in bytes, together.
    #[must_use]
    pub fn size(&self) -> u64 {
        let layers = self.manifest["layers"].as_array().into_iter().flatten();
        layers.map(|layer| layer["size"].as_u64().unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
    }

    /// Unpacks all layers into a folder, as a container's runtime does, with file capabilities: that takes root.
    ///
    /// # Errors
    /// When a layer is not what the configuration says, or can't be unpacked.
    pub fn unpack(&self, into: &Path) -> Result<()> {
        let layers = self.manifest["layers"].as_array().context("no layers")?;
        let layers = layers.iter().map(|layer| self.layout.blob(layer)).collect::<Result<Vec<_>>>()?;
        let expected = &self.config["rootfs"]["diff_ids"];
        let found = layers.iter().map(|layer| sha256("zcat", layer)).collect::<Result<Vec<_>>>()?;
        ensure!(*expected == serde_json::json!(found), "{found:?} are not the layers {expected}");
        for layer in &layers {
            let mut tar = Command::new("tar");
            tar.args(["--xattrs", "--xattrs-include=security.capability", "-xzpf"]).arg(layer);
            run(tar.arg("-C").arg(into))?;
        }
        Ok(())
    }
}

/// The value of an unpacked file's extended attribute `security.capability`: a `vfs_cap_data` of capabilities(7).
///
/// # Errors
/// When the file has none.
pub fn file_capabilities(file: &Path) -> Result<Vec<u8>> {
    let mut value = vec![0; 64];
    let length = getxattr(file, "security.capability", &mut value)
        .with_context(|| format!("{} has no capabilities", file.display()))?;
    value.truncate(length);
    Ok(value)
}

/// The digest of what a program reads from a file, as descriptors write it.
fn sha256(reader: &str, file: &Path) -> Result<String> {
    let script = format!("set -o pipefail; {reader} < \"$1\" | sha256sum");
    let summed = run(Command::new("bash").args(["-c", &script, "sha256"]).arg(file))?;
    let digest = summed.split(' ').next().unwrap_or_default();
    Ok(format!("sha256:{digest}"))
}
