//! An exporter that writes to the log.

use std::borrow::Cow;

use bytes::Bytes;
use sidewinder_config::Verbosity;
use tracing::info;

use super::delivery::Transport;
use super::exporter::{Exporter, ExporterError};
use super::options::ExporterOptions;
use super::outcome::{SendOutcome, with_error_chain};
use crate::decode::{DecodedFrame, DecodedProfile, decode_profiles_data};

impl Exporter {
    /// Starts an exporter that logs each report.
    ///
    /// # Errors
    ///
    /// If its thread can't be started.
    pub fn debug(options: ExporterOptions, verbosity: Verbosity) -> Result<Self, ExporterError> {
        let options = ExporterOptions { max_request_bytes: usize::MAX, consumers: 1, ..options };
        let exporter = options.name.clone();
        Self::start(options, || Ok(LogTransport { exporter, verbosity }))
    }
}

struct LogTransport {
    exporter: String,
    verbosity: Verbosity,
}

impl Transport for LogTransport {
    async fn attempt(&self, message: Bytes) -> SendOutcome {
        match decode_profiles_data(&message) {
            Ok(profiles) => {
                self.log_profiles(&profiles, message.len());
                SendOutcome::Accepted
            }
            Err(error) => SendOutcome::WriteFailed { reason: with_error_chain("no report", &error) },
        }
    }
}

/// The name of a frame, with a backslash before a function's that looks like a marker.
fn shown(frame: &DecodedFrame) -> Cow<'_, str> {
    let name = frame.function().unwrap_or("?");
    let is_function = frame.is_marker() != Some(true);
    if is_function && name.starts_with(['[', '\\']) { format!("\\{name}").into() } else { name.into() }
}

impl LogTransport {
    fn log_profiles(&self, profiles: &[DecodedProfile], bytes: usize) {
        let exporter = self.exporter.as_str();
        let samples: usize = profiles.iter().map(|profile| profile.samples.len()).sum();
        let events: usize = profiles.iter().map(|profile| profile.events().count()).sum();
        info!(exporter, profiles = profiles.len(), samples, events, bytes, "profiles");
        if self.verbosity == Verbosity::Basic {
            return;
        }
        for profile in profiles {
            let (kind, events) = (&*profile.sample_type, profile.events().count());
            info!(exporter, kind, events, resource = ?profile.resource, "profile");
            if self.verbosity == Verbosity::Detailed {
                for sample in &profile.samples {
                    let stack = sample.stack.iter().map(|frame| shown(frame)).collect::<Vec<_>>().join(" < ");
                    let times_unix_ns = &sample.timestamps_unix_ns;
                    info!(exporter, stack, ?times_unix_ns, attributes = ?sample.attributes, "sample");
                }
            }
        }
    }
}
