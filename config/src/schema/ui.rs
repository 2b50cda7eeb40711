//! Keys of `service::ui`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::client::TIMES;
use super::fields::{FieldVisitor, KeyGroup};
use crate::model::Ui;

/// A shorter window would show nothing.
const WINDOWS: RangeInclusive<Duration> = Duration::from_secs(1)..=*TIMES.end();

impl KeyGroup for Ui {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("enabled", &mut self.enabled);
        fields.value("endpoint", &mut self.endpoint);
        fields.duration("window", &mut self.window, &WINDOWS);
        fields.value("memory_limit_mib", &mut self.memory_limit_mib);
        if self.enabled && !self.endpoint.is_local() {
            let message = "whoever reaches this port sees what the profiled processes do: listen on localhost, and let \
                           `kubectl port-forward` or ssh take you there";
            fields.warn("endpoint", message);
        }
    }
}
