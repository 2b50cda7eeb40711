//! Single values: what text or number each type is in a configuration.

use std::path::PathBuf;
use std::time::Duration;

use crate::duration;
use crate::model::*;
use crate::tree::{Node, Value};

/// A value that is not one of the type's; with the reason where the kind alone does not tell it.
#[derive(Default)]
pub(super) struct Refused(pub(super) Option<String>);

impl Refused {
    pub(super) fn because(reason: impl std::fmt::Display) -> Self {
        Self(Some(reason.to_string()))
    }
}

/// What a key takes, for programs: the kinds of values that JSON Schema can tell apart.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Shape {
    Text,
    /// One of these, in any case.
    Word(&'static [&'static str]),
    /// A text as Go writes durations, or 0.
    Duration,
    Bool,
    /// A number within these bounds; whole ones only where so said.
    Number {
        is_whole: bool,
        min: f64,
        max: Option<f64>,
    },
    /// Text, a number or a truth value.
    Any,
    List(Box<Shape>),
    /// Names and texts: a map, or a list of maps.
    Headers,
    /// Maps whose keys are listed on their own.
    Maps,
}

/// A type with a form in configuration.
pub(super) trait Scalar: Sized {
    /// Whether errors must not show what was given.
    const SECRET: bool = false;

    /// What is allowed, to follow "expected".
    fn allowed() -> String;

    /// What is allowed, for programs.
    fn shape() -> Shape {
        Shape::Text
    }

    /// The value that `node` writes.
    fn read(node: &Node) -> Result<Self, Refused>;

    /// How the value is written.
    fn write(&self) -> Value;
}

/// The text of a node: written as text, or brought by a `${...}` whatever it looks like.
pub(super) fn text_of(node: &Node) -> Option<&str> {
    match (&node.expanded, &node.value) {
        (Some(expanded), _) => Some(&expanded.text),
        (None, Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn integer_of(node: &Node) -> Result<i128, Refused> {
    match node.value {
        Value::Integer(value) => Ok(value),
        // 2^53: beyond it a float no longer tells one whole number from the next.
        #[expect(clippy::cast_possible_truncation, reason = "the guard keeps to whole numbers that fit")]
        Value::Float(value) if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 => {
            Ok(value as i128)
        }
        _ => Err(Refused::default()),
    }
}

/// Types that are a whole number within bounds.
macro_rules! whole_numbers {
    ($($name:ty, $inner:ty, $allowed:expr, $bounds:expr, $new:expr, $get:expr;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                $allowed
            }

            fn shape() -> Shape {
                let (min, max) = $bounds;
                Shape::Number { is_whole: true, min, max }
            }

            fn read(node: &Node) -> Result<Self, Refused> {
                let number = <$inner>::try_from(integer_of(node)?).map_err(|_| Refused::default())?;
                let new: fn($inner) -> Result<$name, Refused> = $new;
                new(number)
            }

            fn write(&self) -> Value {
                let get: fn(&$name) -> $inner = $get;
                Value::Integer(get(self).into())
            }
        }
    )*};
}

macro_rules! ranged_whole_numbers {
    ($($name:ty),*) => {
        whole_numbers! {$(
            $name, u32, format!("a whole number from {} to {}", <$name>::MIN, <$name>::MAX),
            (<$name>::MIN.into(), Some(<$name>::MAX.into())),
            |number| <$name>::new(number).map_err(|_| Refused::default()), |number| number.get();
        )*}
    };
}

ranged_whole_numbers!(
    SamplesPerSecond,
    MemoryLimitMib,
    UiMemoryMib,
    MaxFrames,
    NumConsumers,
    Percent,
    VerifierLogLevel
);

whole_numbers! {
    Pid, u32, format!("a process id, 1 to {}", Pid::MAX), (1.0, Some(Pid::MAX.into())),
        |number| Pid::new(number).map_err(|_| Refused::default()), |pid| pid.get();
    u16, u16, "a port, 1 to 65535".to_owned(), (1.0, Some(u16::MAX.into())),
        |number| if number == 0 { Err(Refused::default()) } else { Ok(number) }, |number| *number;
    u64, u64, "a whole number of at least 1".to_owned(), (1.0, None),
        |number| if number == 0 { Err(Refused::default()) } else { Ok(number) }, |number| *number;
}

macro_rules! ranged_numbers {
    ($($name:ty),*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                format!("a number from {} to {}", <$name>::MIN, <$name>::MAX)
            }

            fn shape() -> Shape {
                Shape::Number { is_whole: false, min: Self::MIN, max: Some(Self::MAX) }
            }

            fn read(node: &Node) -> Result<Self, Refused> {
                let number = match node.value {
                    Value::Float(value) => value,
                    #[expect(clippy::cast_precision_loss, reason = "what loses precision is out of range")]
                    Value::Integer(value) => value as f64,
                    _ => return Err(Refused::default()),
                };
                Self::new(number).map_err(|_| Refused::default())
            }

            fn write(&self) -> Value {
                Value::Float(self.get())
            }
        }
    )*};
}

ranged_numbers!(Fraction, Multiplier);

impl Scalar for bool {
    fn allowed() -> String {
        "true or false".to_owned()
    }

    fn shape() -> Shape {
        Shape::Bool
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        match node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(Refused::default()),
        }
    }

    fn write(&self) -> Value {
        Value::Bool(*self)
    }
}

impl Scalar for String {
    fn allowed() -> String {
        "text".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        match (text_of(node), &node.value) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, Value::Integer(_) | Value::Float(_) | Value::Bool(_)) => {
                Err(Refused::because("put it in quotes"))
            }
            _ => Err(Refused::default()),
        }
    }

    fn write(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl Scalar for Secret {
    const SECRET: bool = true;

    fn allowed() -> String {
        "text".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        String::read(node).map(Self::new)
    }

    fn write(&self) -> Value {
        Value::Text(self.reveal().to_owned())
    }
}

impl Scalar for Duration {
    fn allowed() -> String {
        "a duration such as 1m30s".to_owned()
    }

    fn shape() -> Shape {
        Shape::Duration
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        match &node.value {
            Value::Integer(0) => Ok(Self::ZERO),
            // The Collector takes these for nanoseconds, which nobody means.
            Value::Integer(_) => Err(Refused::because("it has no unit")),
            _ => text_of(node).and_then(duration::parse).ok_or_else(Refused::default),
        }
    }

    fn write(&self) -> Value {
        Value::Text(duration::format(*self))
    }
}

impl Scalar for PathBuf {
    fn allowed() -> String {
        "a path".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        match text_of(node) {
            Some("") | None => Err(Refused::default()),
            Some(text) if text.contains('\0') => Err(Refused::because("a path has no zero byte")),
            Some(text) => Ok(text.into()),
        }
    }

    fn write(&self) -> Value {
        Value::Text(self.display().to_string())
    }
}

impl Scalar for FileMode {
    fn allowed() -> String {
        "permission bits in octal, in quotes, as in '0750'".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        let bits = text_of(node).and_then(|text| u32::from_str_radix(text, 8).ok());
        bits.and_then(Self::new).ok_or_else(Refused::default)
    }

    fn write(&self) -> Value {
        Value::Text(format!("{:04o}", self.bits()))
    }
}

impl Scalar for LogOutput {
    fn allowed() -> String {
        "stdout, stderr or a path".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Refused> {
        match text_of(node) {
            Some("stdout") => Ok(Self::Stdout),
            Some("stderr") => Ok(Self::Stderr),
            _ => PathBuf::read(node).map(Self::File),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Stdout => Value::Text("stdout".to_owned()),
            Self::Stderr => Value::Text("stderr".to_owned()),
            Self::File(path) => path.write(),
        }
    }
}

/// Types that are read by their `FromStr` and written by their `Display`.
macro_rules! parsed {
    ($($name:ty, $allowed:literal;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                $allowed.to_owned()
            }

            fn read(node: &Node) -> Result<Self, Refused> {
                text_of(node).ok_or_else(Refused::default)?.parse().map_err(Refused::because)
            }

            fn write(&self) -> Value {
                Value::Text(self.to_string())
            }
        }
    )*};
}

parsed! {
    Endpoint, "host:port, https://host:port, dns:///host:port or unix:///path";
    HttpEndpoint, "http://host:port or https://host:port, with or without a path";
    ListenAddress, "host:port, as in localhost:13133";
    BuildId, "a build ID in hexadecimal";
    ComponentId, "an id, type or type/name";
}

/// Types that are one of a few words, read in any case as in the Collector.
macro_rules! words {
    ($($name:ty: $first:literal => $first_variant:ident $(, $word:literal => $variant:ident)*;)*) => {$(
        impl Scalar for $name {
            fn allowed() -> String {
                [$first $(, $word)*].join(" | ")
            }

            fn shape() -> Shape {
                Shape::Word(&[$first $(, $word)*])
            }

            fn read(node: &Node) -> Result<Self, Refused> {
                match text_of(node).ok_or_else(Refused::default)?.to_ascii_lowercase().as_str() {
                    $first => Ok(Self::$first_variant),
                    $($word => Ok(Self::$variant),)*
                    _ => Err(Refused::default()),
                }
            }

            fn write(&self) -> Value {
                let word = match self {
                    Self::$first_variant => $first,
                    $(Self::$variant => $word,)*
                };
                Value::Text(word.to_owned())
            }
        }
    )*};
}

words! {
    ErrorMode: "ignore" => Ignore, "propagate" => Propagate;
    UnwindTrust: "rows" => Rows, "code" => Code;
    UnwindMode: "auto" => Auto, "frame_pointers" => FramePointers, "tables" => Tables;
    SymbolMode: "local" => Local, "none" => None;
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
