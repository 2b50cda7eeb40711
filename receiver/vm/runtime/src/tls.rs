//! Thread-local variables, as walks look them up.

use sidewinder_bpf::{PublishedTlsLocation, TlsVector};
use sidewinder_process::tls::TlsLocation;

/// A location as the eBPF programs look it up; `None` if its offset or module is beyond what they support.
#[must_use]
pub fn published_location(at: TlsLocation, vector: TlsVector) -> Option<PublishedTlsLocation> {
    match at {
        TlsLocation::Static { offset } => {
            Some(PublishedTlsLocation::Static { offset: offset.try_into().ok()? })
        }
        TlsLocation::Dynamic { module, offset } => {
            let modules = 0..=PublishedTlsLocation::MODULE_MAX;
            let module = u16::try_from(module).ok().filter(|module| modules.contains(module))?;
            Some(PublishedTlsLocation::Dynamic { module, offset: offset.try_into().ok()?, vector })
        }
        TlsLocation::Indirect { pointer, offset } => Some(PublishedTlsLocation::Indirect {
            pointer: pointer.try_into().ok()?,
            offset: offset.try_into().ok()?,
        }),
    }
}
