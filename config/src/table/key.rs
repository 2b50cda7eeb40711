//! The rows of the reference table.

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Sections, component types and keys, `exporters::otlp_grpc::tls::ca_file`; `[]` follows a list of maps, `*` stands for
    /// user-defined keys.
    pub(crate) path: &'static str,
    /// Its meaning.
    pub(crate) description: &'static str,
    /// The unit of a plain number; empty if there is none, or if the value contains it.
    pub(crate) unit: &'static str,
    /// How it differs from the Collector or OpenTelemetry's profiler, and why.
    pub(crate) deviation: Option<&'static str>,
    /// Whether this version supports it.
    pub(crate) support: KeySupport,
    /// What a change of it requires.
    pub(crate) reload: Reload,
}

/// What a change of a key requires when the configuration is reloaded at run time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reload {
    /// Nothing: it applies from the next report on. A changed exporter is replaced, after the old one has sent its data.
    Live,
    /// The receiver restarts. Interrupts during the restart are not sampled; no event is lost.
    Restarts,
}

/// Whether this version supports a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySupport {
    /// It has an effect.
    Supported,
    /// Not yet: a value other than `default` (in YAML) causes a warning.
    NotYet { default: &'static str },
    /// No: a value other than `default` (in YAML) causes an error with an alternative.
    Refused { default: &'static str, instead: &'static str },
    /// Never, because it has no meaning here: giving it causes a warning with the reason.
    Ignored { why: &'static str },
}

impl KeySupport {
    /// Whether there is any reason to give the key.
    pub(crate) const fn accepts_values(self) -> bool {
        matches!(self, Self::Supported | Self::NotYet { .. })
    }
}

/// A row without a unit, for a supported key that can change at run time.
pub(super) const fn key(path: &'static str, description: &'static str) -> Key {
    Key { path, description, unit: "", deviation: None, support: KeySupport::Supported, reload: Reload::Live }
}

impl Key {
    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(super) const fn deviates(self, deviation: &'static str) -> Self {
        Self { deviation: Some(deviation), ..self }
    }

    pub(super) const fn not_yet(self, default: &'static str) -> Self {
        Self { support: KeySupport::NotYet { default }, ..self }
    }

    pub(super) const fn refused(self, default: &'static str, instead: &'static str) -> Self {
        Self { support: KeySupport::Refused { default, instead }, ..self }
    }

    pub(super) const fn meaningless(self, why: &'static str) -> Self {
        Self { support: KeySupport::Ignored { why }, ..self }
    }

    pub(super) const fn restarts(self) -> Self {
        Self { reload: Reload::Restarts, ..self }
    }
}

/// The default of an unsupported component: its presence alone is an error.
pub(super) const ABSENT: &str = "absent";
