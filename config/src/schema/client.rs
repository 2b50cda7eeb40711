//! Keys that the OTLP exporters have in common.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::fields::{FieldVisitor, KeyGroup};
use crate::diagnostics::ConfigProblem;
use crate::model::*;

/// Bounds of durations for which the Collector only has a lower bound.
pub(super) const TIMES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(365 * 24 * 3_600);

/// A name in lower case and a value of a request header: over gRPC (grpc/PROTOCOL-HTTP2, "Custom-Metadata") and over HTTP.
pub(super) fn check_header(name: &str, value: &str) -> Result<String, String> {
    const LONGEST: usize = 256;
    let name = name.to_ascii_lowercase();
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    if name.is_empty() || name.len() > LONGEST || !name.chars().all(letter) {
        return Err(format!("a header's name is 1 to {LONGEST} letters, digits, '_', '-' or '.'"));
    }
    if name.starts_with("grpc-")
        || ["te", "content-type", "otlp-profiles-development-version"].contains(&name.as_str())
    {
        return Err(format!("the header {name:?} is the protocol's own"));
    }
    if name.ends_with("-bin") {
        return Err(format!("the header {name:?} would be binary, which is not supported in this version"));
    }
    if !value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Err(format!("the value of the header {name:?} has a character that is not printable ASCII"));
    }
    Ok(name)
}

/// A duration for which zero means "no limit".
pub(super) fn zero_is_none(fields: &mut FieldVisitor<'_>, key: &str, slot: &mut Option<Duration>) {
    let mut time = slot.unwrap_or_default();
    fields.duration(key, &mut time, &TIMES);
    *slot = (!time.is_zero()).then_some(time);
}

/// The keys of both OTLP exporters, in the order of the reference.
pub(super) struct OtlpClientKeys<'a> {
    pub(super) headers: &'a mut BTreeMap<String, Secret>,
    pub(super) compression: &'a mut Compression,
    pub(super) timeout: &'a mut Option<Duration>,
    pub(super) tls: &'a mut TlsClient,
    pub(super) auth: &'a mut Option<ComponentId>,
    pub(super) retry_on_failure: &'a mut Retry,
    pub(super) sending_queue: &'a mut SendingQueue,
}

impl KeyGroup for OtlpClientKeys<'_> {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.headers("headers", self.headers, check_header);
        fields.value("compression", self.compression);
        zero_is_none(fields, "timeout", self.timeout);
        fields.group("tls", self.tls);
        let mut auth = self.auth.take().map(|id| Auth(Some(id)));
        fields.optional_group("auth", &mut auth);
        *self.auth = auth.and_then(|auth| auth.0);
        fields.group("retry_on_failure", self.retry_on_failure);
        fields.group("sending_queue", self.sending_queue);
    }
}

/// The form `auth: {authenticator: ID}`.
#[derive(Default)]
struct Auth(Option<ComponentId>);

impl KeyGroup for Auth {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.optional("authenticator", &mut self.0);
        if self.0.is_none() && !fields.is_given("authenticator") {
            let allowed = "the id of an extension: bearertokenauth or basicauth".to_owned();
            fields.error("authenticator", ConfigProblem::Missing { allowed });
        }
    }
}

impl KeyGroup for TlsClient {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("insecure", &mut self.insecure);
        pem(fields, ["ca_file", "ca_pem"], &mut self.ca);
        fields.value("include_system_ca_certs_pool", &mut self.include_system_ca_certs_pool);
        let (mut certificate, mut key) = match self.identity.take() {
            Some(identity) => (Some(identity.certificate), Some(identity.key)),
            None => (None, None),
        };
        pem(fields, ["cert_file", "cert_pem"], &mut certificate);
        pem(fields, ["key_file", "key_pem"], &mut key);
        self.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
            (None, None) => None,
            _ => {
                fields.contradiction("a certificate needs its key, and a key its certificate");
                None
            }
        };
        fields.optional_or_empty("server_name_override", &mut self.server_name_override);
        fields.value("insecure_skip_verify", &mut self.insecure_skip_verify);
        let mut oldest = Some(self.min_version);
        fields.optional_or_empty("min_version", &mut oldest);
        self.min_version = oldest.unwrap_or_default();
        fields.optional_or_empty("max_version", &mut self.max_version);
        if self.max_version.is_some_and(|newest| newest < self.min_version) {
            let reason = "must not be older than min_version".to_owned();
            fields.error("max_version", ConfigProblem::Contradiction(reason));
        }
        zero_is_none(fields, "reload_interval", &mut self.reload_interval);
        if self.include_system_ca_certs_pool && self.ca.is_none() {
            let known = "the system's authorities are trusted anyway where ca_file and ca_pem are absent";
            fields.warn("include_system_ca_certs_pool", known);
        }
    }
}

/// A PEM text that is given as a file or inline, but not both. An empty value is treated as absent.
fn pem(fields: &mut FieldVisitor<'_>, keys: [&'static str; 2], slot: &mut Option<Pem>) {
    let (file, text) = match slot.take() {
        Some(Pem::File(path)) => (Some(path), None),
        Some(Pem::Text(text)) => (None, Some(text)),
        None => (None, None),
    };
    let (file, text) = file_or_text(fields, keys, file, text);
    *slot = file.map(Pem::File).or(text.map(Pem::Text));
}

/// A text that is given as a file by the first key or inline by the second, but not both.
pub(super) fn file_or_text(
    fields: &mut FieldVisitor<'_>,
    [file_key, text_key]: [&'static str; 2],
    mut file: Option<PathBuf>,
    mut text: Option<Secret>,
) -> (Option<PathBuf>, Option<Secret>) {
    let current = if file.is_some() { file_key } else { text_key };
    fields.choice(&[file_key, text_key], false, Some(current));
    fields.optional(file_key, &mut file);
    fields.optional(text_key, &mut text);
    text.take_if(|text| text.reveal().is_empty());
    (file, text)
}

impl KeyGroup for Retry {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("enabled", &mut self.enabled);
        fields.duration("initial_interval", &mut self.initial_interval, &TIMES);
        fields.value("multiplier", &mut self.multiplier);
        fields.value("randomization_factor", &mut self.randomization_factor);
        fields.duration("max_interval", &mut self.max_interval, &TIMES);
        zero_is_none(fields, "max_elapsed_time", &mut self.max_elapsed_time);
        if let Some(most) = self.max_elapsed_time {
            for (name, interval) in
                [("initial_interval", self.initial_interval), ("max_interval", self.max_interval)]
            {
                if most < interval {
                    let reason = format!("must not be less than {name}");
                    fields.error("max_elapsed_time", ConfigProblem::Contradiction(reason));
                }
            }
        }
    }
}

impl KeyGroup for SendingQueue {
    /// In the Collector, a size without a sizer counts requests. A user who copies `queue_size: 5000` from there must not
    /// get a queue of 5000 bytes, so such a size is refused.
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("enabled", &mut self.enabled);
        fields.value("sizer", &mut self.sizer);
        let instead = "give sizer: bytes and a queue_size in bytes".to_owned();
        if self.sizer != Sizer::Bytes {
            fields.error("sizer", ConfigProblem::NotInThisVersion { instead });
        } else if fields.is_given("queue_size") && !fields.is_given("sizer") {
            let reason = format!(
                "counts requests where sizer is absent, which is not supported in this version: {instead}"
            );
            fields.error("queue_size", ConfigProblem::Contradiction(reason));
        }
        fields.value("queue_size", &mut self.queue_size);
        fields.value("num_consumers", &mut self.num_consumers);
        fields.optional("storage", &mut self.storage);
    }
}
