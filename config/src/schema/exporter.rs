//! Keys of the exporters.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::client::{OtlpClientKeys, TIMES};
use super::fields::{FieldVisitor, KeyGroup};
use crate::diagnostics::ConfigProblem;
use crate::model::*;

impl KeyGroup for OtlpGrpcExporter {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.required("endpoint", &mut self.endpoint);
        let mut client = OtlpClientKeys {
            headers: &mut self.headers,
            compression: &mut self.compression,
            timeout: &mut self.timeout,
            tls: &mut self.tls,
            auth: &mut self.auth,
            retry_on_failure: &mut self.retry_on_failure,
            sending_queue: &mut self.sending_queue,
        };
        client.fields(fields);
        fields.optional_group("keepalive", &mut self.keepalive);
        fields.optional_or_empty("authority", &mut self.authority);
        fields.value("wait_for_ready", &mut self.wait_for_ready);
        if self.endpoint.looks_plaintext() && self.uses_tls() {
            fields.warn("endpoint", "http:// does not switch TLS off, tls::insecure: true does");
        }
    }
}

/// gRPC's own client raises shorter times to this.
const PINGS: RangeInclusive<Duration> = Duration::from_secs(10)..=*TIMES.end();

impl KeyGroup for Keepalive {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.duration("time", &mut self.time, &PINGS);
        fields.duration("timeout", &mut self.timeout, &TIMES);
        fields.value("permit_without_stream", &mut self.permit_without_stream);
    }
}

impl KeyGroup for OtlpHttpExporter {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.optional_or_empty("endpoint", &mut self.endpoint);
        fields.optional_or_empty("profiles_endpoint", &mut self.profiles_endpoint);
        if self.endpoint.is_none()
            && self.profiles_endpoint.is_none()
            && !fields.is_given("endpoint")
            && !fields.is_given("profiles_endpoint")
        {
            let allowed = "http://host:port or https://host:port, here or whole as profiles_endpoint";
            fields.error("endpoint", ConfigProblem::Missing { allowed: allowed.to_owned() });
        }
        let mut client = OtlpClientKeys {
            headers: &mut self.headers,
            compression: &mut self.compression,
            timeout: &mut self.timeout,
            tls: &mut self.tls,
            auth: &mut self.auth,
            retry_on_failure: &mut self.retry_on_failure,
            sending_queue: &mut self.sending_queue,
        };
        client.fields(fields);
    }
}

impl KeyGroup for FileExporter {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.required("path", &mut self.path);
        fields.value("format", &mut self.format);
    }
}

impl KeyGroup for DebugExporter {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("verbosity", &mut self.verbosity);
    }
}
