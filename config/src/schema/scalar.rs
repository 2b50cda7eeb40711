//! Single values: the text or number of each type in a configuration.

use std::path::PathBuf;
use std::time::Duration;

use crate::duration;
use crate::model::*;
use crate::tree::{ConfigNode, ConfigValue};

/// A value that is not valid for its type; with a reason if the type alone does not explain it.
#[derive(Default)]
pub(super) struct InvalidScalar(pub(super) Option<String>);

impl InvalidScalar {
    pub(super) fn new(reason: impl std::fmt::Display) -> Self {
        Self(Some(reason.to_string()))
    }
}

/// The accepted values of a key, for programs: the kinds of values that JSON Schema can distinguish.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ValueShape {
    Text,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    /// A text in Go's notation of durations, or 0.
    Duration,
    Bool,
    /// A number within these bounds; integers only if so stated, and other numbers also as text.
    Number {
        is_whole: bool,
        min: f64,
        max: Option<f64>,
    },
    /// Text, a number or a boolean.
    Any,
    List(Box<ValueShape>),
    /// Names and texts: a map, or a list of maps.
    Headers,
    /// Maps whose keys are listed separately.
    Maps,
}

/// A type with a notation in the configuration.
pub(super) trait Scalar: Sized {
    /// Whether errors must not contain the given value.
    const SECRET: bool = false;

    /// The accepted values, as a continuation of "expected".
    fn allowed() -> String;

    /// The accepted values, for programs.
    fn shape() -> ValueShape {
        ValueShape::Text
    }

    /// Parses the value of `node`.
    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar>;

    /// The value as it is written.
    fn write(&self) -> ConfigValue;
}

/// The text of a node: written as text, or the text that replaces a `${...}`, whatever type it looks like.
pub(super) fn as_text(node: &ConfigNode) -> Option<&str> {
    match (&node.expanded, &node.value) {
        (Some(expanded), _) => Some(&expanded.text),
        (None, ConfigValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// A number, also one that is written as text: `helm --set key=0.01` makes text of every number that is not whole.
fn as_number(node: &ConfigNode) -> Option<f64> {
    match &node.value {
        ConfigValue::Float(value) => Some(*value),
        #[expect(clippy::cast_precision_loss, reason = "what loses precision is out of every range")]
        ConfigValue::Integer(value) => Some(*value as f64),
        // Words that Rust parses as well, such as `inf`, are not finite.
        ConfigValue::Text(text) => text.parse().ok().filter(|value: &f64| value.is_finite()),
        _ => None,
    }
}

fn as_integer(node: &ConfigNode) -> Result<i128, InvalidScalar> {
    match node.value {
        ConfigValue::Integer(value) => Ok(value),
        // 2^53: beyond it a float can't represent every integer.
        #[expect(clippy::cast_possible_truncation, reason = "the guard keeps to whole numbers that fit")]
        ConfigValue::Float(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
            Ok(value as i128)
        }
        _ => Err(InvalidScalar::default()),
    }
}

/// Integer types within bounds.
macro_rules! whole_numbers {
    ($($name:ty, $inner:ty, $allowed:expr, $bounds:expr, $new:expr, $get:expr;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                $allowed
            }

            fn shape() -> ValueShape {
                let (min, max) = $bounds;
                ValueShape::Number { is_whole: true, min, max }
            }

            fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
                let number = <$inner>::try_from(as_integer(node)?).map_err(|_| InvalidScalar::default())?;
                let new: fn($inner) -> Result<$name, InvalidScalar> = $new;
                new(number)
            }

            fn write(&self) -> ConfigValue {
                let get: fn(&$name) -> $inner = $get;
                ConfigValue::Integer(get(self).into())
            }
        }
    )*};
}

macro_rules! ranged_whole_numbers {
    ($($name:ty),*) => {
        whole_numbers! {$(
            $name, u32, format!("a whole number from {} to {}", <$name>::MIN, <$name>::MAX),
            (<$name>::MIN.into(), Some(<$name>::MAX.into())),
            |number| <$name>::new(number).map_err(|_| InvalidScalar::default()), |number| number.get();
        )*}
    };
}

ranged_whole_numbers!(
    SamplesPerSecond,
    MemoryLimitMib,
    UiMemoryMib,
    SavedTablesMib,
    MaxFrames,
    NumConsumers,
    Percent,
    VerifierLogLevel
);

whole_numbers! {
    SelectedPid, u32, format!("a process id, 1 to {}", SelectedPid::MAX), (1.0, Some(SelectedPid::MAX.into())),
        |number| SelectedPid::new(number).map_err(|_| InvalidScalar::default()), |pid| pid.get();
    u16, u16, "a port, 1 to 65535".to_owned(), (1.0, Some(u16::MAX.into())),
        |number| if number == 0 { Err(InvalidScalar::default()) } else { Ok(number) }, |number| *number;
    u64, u64, "a whole number of at least 1".to_owned(), (1.0, None),
        |number| if number == 0 { Err(InvalidScalar::default()) } else { Ok(number) }, |number| *number;
}

macro_rules! ranged_numbers {
    ($($name:ty),*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                format!("a number from {} to {}", <$name>::MIN, <$name>::MAX)
            }

            fn shape() -> ValueShape {
                ValueShape::Number { is_whole: false, min: Self::MIN, max: Some(Self::MAX) }
            }

            fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
                let number = as_number(node).and_then(|number| Self::new(number).ok());
                number.ok_or_else(InvalidScalar::default)
            }

            fn write(&self) -> ConfigValue {
                ConfigValue::Float(self.get())
            }
        }
    )*};
}

ranged_numbers!(Fraction, Multiplier);

impl Scalar for bool {
    fn allowed() -> String {
        "true or false".to_owned()
    }

    fn shape() -> ValueShape {
        ValueShape::Bool
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match node.value {
            ConfigValue::Bool(value) => Ok(value),
            _ => Err(InvalidScalar::default()),
        }
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Bool(*self)
    }
}

impl Scalar for String {
    fn allowed() -> String {
        "text".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match (as_text(node), &node.value) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, ConfigValue::Integer(_) | ConfigValue::Float(_) | ConfigValue::Bool(_)) => {
                Err(InvalidScalar::new("put it in quotes"))
            }
            _ => Err(InvalidScalar::default()),
        }
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.clone())
    }
}

impl Scalar for Secret {
    const SECRET: bool = true;

    fn allowed() -> String {
        "text".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        String::read(node).map(Self::new)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.reveal().to_owned())
    }
}

impl Scalar for Duration {
    fn allowed() -> String {
        "a duration such as 1m30s".to_owned()
    }

    fn shape() -> ValueShape {
        ValueShape::Duration
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match &node.value {
            ConfigValue::Integer(0) => Ok(Self::ZERO),
            // The Collector reads these as nanoseconds, which is never intended.
            ConfigValue::Integer(_) => Err(InvalidScalar::new("it has no unit")),
            _ => as_text(node).and_then(duration::parse).ok_or_else(InvalidScalar::default),
        }
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(duration::format(*self))
    }
}

impl Scalar for PathBuf {
    fn allowed() -> String {
        "a path".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match as_text(node) {
            Some("") | None => Err(InvalidScalar::default()),
            Some(text) if text.contains('\0') => Err(InvalidScalar::new("a path has no zero byte")),
            Some(text) => Ok(text.into()),
        }
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.to_string_lossy().into_owned())
    }
}

impl Scalar for FileMode {
    fn allowed() -> String {
        "permission bits in octal, in quotes, for example '0750'".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        let bits = as_text(node).and_then(|text| u32::from_str_radix(text, 8).ok());
        bits.and_then(Self::new).ok_or_else(InvalidScalar::default)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(format!("{:04o}", self.bits()))
    }
}

impl Scalar for LogOutput {
    fn allowed() -> String {
        "stdout, stderr or a path".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        match as_text(node) {
            Some("stdout") => Ok(Self::Stdout),
            Some("stderr") => Ok(Self::Stderr),
            _ => PathBuf::read(node).map(Self::File),
        }
    }

    fn write(&self) -> ConfigValue {
        match self {
            Self::Stdout => ConfigValue::Text("stdout".to_owned()),
            Self::Stderr => ConfigValue::Text("stderr".to_owned()),
            Self::File(path) => path.write(),
        }
    }
}

/// Types that are parsed by `FromStr` and written by `Display`.
macro_rules! parsed {
    ($($name:ty, $allowed:literal;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                $allowed.to_owned()
            }

            fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
                as_text(node).ok_or_else(InvalidScalar::default)?.parse().map_err(InvalidScalar::new)
            }

            fn write(&self) -> ConfigValue {
                ConfigValue::Text(self.to_string())
            }
        }
    )*};
}

parsed! {
    Endpoint, "host:port, https://host:port, dns:///host:port or unix:///path";
    HttpEndpoint, "http://host:port or https://host:port, with or without a path";
    ListenAddress, "host:port, for example localhost:13133";
    GnuBuildId, "a build ID in hexadecimal";
    ComponentId, "an id, type or type/name";
}

/// Types that are one of a few words, accepted in any case as in the Collector.
macro_rules! words {
    ($($name:ty: $first:literal => $first_variant:ident $(, $word:literal => $variant:ident)*;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                [$first $(, $word)*].join(" | ")
            }

            fn shape() -> ValueShape {
                ValueShape::Word(&[$first $(, $word)*])
            }

            fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
                match as_text(node).ok_or_else(InvalidScalar::default)?.to_ascii_lowercase().as_str() {
                    $first => Ok(Self::$first_variant),
                    $($word => Ok(Self::$variant),)*
                    _ => Err(InvalidScalar::default()),
                }
            }

            fn write(&self) -> ConfigValue {
                let word = match self {
                    Self::$first_variant => $first,
                    $(Self::$variant => $word,)*
                };
                ConfigValue::Text(word.to_owned())
            }
        }
    )*};
}

words! {
    ErrorMode: "ignore" => Ignore, "propagate" => Propagate;
    UnwindTrust: "rows" => Rows, "code" => Code;
    UnwindMode: "auto" => Auto, "frame_pointers" => FramePointers, "tables" => Tables;
    SymbolMode: "local" => Local, "none" => None;
    VmInternals: "hide" => Hide, "show" => Show;
    Compression: "none" => None, "gzip" => Gzip, "zstd" => Zstd;
    TlsVersion: "1.2" => Tls12, "1.3" => Tls13;
    Sizer: "bytes" => Bytes, "items" => Items, "requests" => Requests;
    FileFormat: "proto" => Proto;
    Verbosity: "basic" => Basic, "normal" => Normal, "detailed" => Detailed;
    LogLevel: "debug" => Debug, "info" => Info, "warn" => Warn, "error" => Error;
    LogEncoding: "console" => Console, "json" => Json;
    MetricLevel: "none" => None, "basic" => Basic, "normal" => Normal, "detailed" => Detailed;
    OtlpProtocol: "grpc" => Grpc, "http/protobuf" => HttpProtobuf;
    Temporality: "cumulative" => Cumulative, "delta" => Delta, "low_memory" => LowMemory;
}

pub(super) use words;
