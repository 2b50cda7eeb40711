//! One row of the table, and what it can say.

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Sections, component types and keys, `exporters::otlp_grpc::tls::ca_file`; `[]` follows a list of
    /// maps, `*` stands for keys that are the user's own.
    pub(crate) path: &'static str,
    /// What it means.
    pub(crate) description: &'static str,
    /// The unit of a plain number, empty where there is none or the value names it.
    pub(crate) unit: &'static str,
    /// Where it departs from the Collector or OpenTelemetry's profiler, and why.
    pub(crate) deviation: Option<&'static str>,
    /// Whether this version acts on it.
    pub(crate) support: KeySupport,
    /// What a change of it takes.
    pub(crate) reload: Reload,
}

/// What a change of a key takes, in a configuration that is read again while profiles are made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reload {
    /// Nothing: it holds from the next report on. A changed exporter is replaced, after the old one has
    /// sent what it holds.
    Live,
    /// The receiver starts again. Interrupts of that moment are not sampled; no event is lost.
    Restarts,
}

/// Whether this version acts on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeySupport {
    /// It does.
    Supported,
    /// It does not yet: a value other than `default` (in YAML) is a warning.
    NotYet { default: &'static str },
    /// It does not: a value other than `default` (in YAML) is an error that says what to do instead.
    Refused { default: &'static str, instead: &'static str },
    /// It never will, there is nothing here that it could mean: giving it is a warning that says why.
    Ignored { why: &'static str },
}

impl KeySupport {
    /// Whether a user has any reason to give the key.
    pub(crate) const fn accepts_values(self) -> bool {
        matches!(self, Self::Supported | Self::NotYet { .. })
    }
}

/// A row without unit that this version acts on, and that can change while profiles are made.
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

/// What a refused component is called in its own default: it has none, being there is giving it.
pub(super) const ABSENT: &str = "absent";
