//! Probes that users place in programs.
//!
//! In text, a probe is `TYPE:PATH:FUNCTION[+OFFSET]` or `usdt:PATH:PROVIDER:NAME`, as OpenTelemetry's profiler and bpftrace
//! write it, with options after commas: `,value=arg0:u32,unit=bytes,max_overhead=0.01`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::Fraction;

/// A probe.
#[derive(Clone, PartialEq, Debug)]
pub struct ProbeSpec {
    /// The file with the place, as a path that the profiled processes see.
    pub path: PathBuf,
    /// The place in it.
    pub point: ProbePoint,
    /// The value of a hit; `None`: hits are counted.
    pub value: Option<ProbeValue>,
    /// The unit of the values; `None`: they are counts.
    pub unit: Option<String>,
    /// The share of each CPU's time that its samples may take, beyond which fewer hits are sampled.
    pub max_overhead: Fraction,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbePoint {
    /// In a function.
    Function {
        /// Its symbol, its name in its source, or its address.
        name: String,
        /// In bytes from its start.
        offset: u64,
    },
    /// Where a function returns to.
    Return {
        /// As of [`Function`](Self::Function).
        name: String,
    },
    /// A static trace point.
    Usdt {
        /// Its provider.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// The value of a hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeValue {
    /// Where it is.
    pub source: ProbeValueSource,
    /// Its type; `None`: the one that the trace point states, or `u64`.
    pub integer: Option<ProbeInteger>,
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeInteger {
    /// Its width: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether it has a sign. Negative values count as 0.
    pub is_signed: bool,
}

/// Where a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeValueSource {
    /// In an argument, counted from 0: of a C function, or of a trace point.
    Argument(u8),
    /// In what a C function returns.
    Result,
    /// In a register, `%NAME`.
    Register(String),
}

/// Why a text is not a probe.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidProbe {
    /// It has no type, or an unknown one.
    #[error(
        "a probe is uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION or usdt:PATH:PROVIDER:NAME, and {0:?} is none"
    )]
    Form(String),
    /// A probe of the kernel.
    #[error(
        "probes in the kernel ({0}) are not supported: count with `events`, or probe the function that calls the kernel"
    )]
    Kernel(String),
    /// The path is not absolute.
    #[error("the path {0:?} is not absolute: give the one that the profiled process sees")]
    RelativePath(String),
    /// The offset is not a number.
    #[error("the offset {0:?} is not a number of bytes, as 16 or 0x10")]
    Offset(String),
    /// Returns have no offset.
    #[error("a uretprobe is hit when the function has returned, and takes no offset")]
    OffsetOfReturn,
    /// The value is none.
    #[error("a value is argN, retval or %REGISTER, with a type as :u32 or :s64 after it, and {0:?} is none")]
    Value(String),
    /// Not at this place.
    #[error("{value} is known {known}")]
    ValueElsewhere {
        /// The value.
        value: &'static str,
        /// Where it is known.
        known: &'static str,
    },
    /// The unit is none of OTLP's.
    #[error("a unit is bytes, nanoseconds or count, and needs a value")]
    Unit,
    /// The overhead is not a share.
    #[error("max_overhead is a share of a CPU above 0 and up to 1, such as 0.02")]
    Overhead,
}

impl ProbeSpec {
    /// The default of `max_overhead`.
    pub const MAX_OVERHEAD: f64 = 0.02;
    /// The units of values.
    pub const UNITS: &[&str] = &["bytes", "nanoseconds", "count"];

    /// A probe that counts hits.
    #[must_use]
    pub fn new(path: PathBuf, point: ProbePoint) -> Self {
        let max_overhead = Fraction::new(Self::MAX_OVERHEAD).unwrap_or_default();
        Self { path, point, value: None, unit: None, max_overhead }
    }

    /// The word for its type.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.point {
            ProbePoint::Function { .. } => "uprobe",
            ProbePoint::Return { .. } => "uretprobe",
            ProbePoint::Usdt { .. } => "usdt",
        }
    }

    /// What is behind the path: the function, or provider and name.
    #[must_use]
    pub fn symbol(&self) -> String {
        match &self.point {
            ProbePoint::Function { name, offset: 0 } | ProbePoint::Return { name } => name.clone(),
            ProbePoint::Function { name, offset } => format!("{name}+{offset:#x}"),
            ProbePoint::Usdt { provider, name } => format!("{provider}:{name}"),
        }
    }

    /// The name of its profile: letters, digits and single underscores.
    #[must_use]
    pub fn profile_name(&self) -> String {
        let text = format!("{} {}", self.kind(), self.symbol());
        let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("_")
    }

    /// The probe of a type at a symbol of a file.
    ///
    /// # Errors
    /// If there is no such type, or it has no such symbols.
    pub fn from_parts(kind: &str, path: &str, symbol: &str) -> Result<Self, InvalidProbe> {
        let form = || InvalidProbe::Form(format!("{kind}:{path}:{symbol}"));
        if symbol.is_empty() || path.is_empty() {
            return Err(form());
        }
        if !path.starts_with('/') {
            return Err(InvalidProbe::RelativePath(path.to_owned()));
        }
        let point = match kind {
            "uprobe" => match split_offset(symbol) {
                Some((name, offset)) => ProbePoint::Function { name: name.to_owned(), offset: offset? },
                None => ProbePoint::Function { name: symbol.to_owned(), offset: 0 },
            },
            "uretprobe" if split_offset(symbol).is_some() => return Err(InvalidProbe::OffsetOfReturn),
            "uretprobe" => ProbePoint::Return { name: symbol.to_owned() },
            "usdt" => {
                let (provider, name) = symbol.split_once(':').ok_or_else(form)?;
                if provider.is_empty() || name.is_empty() {
                    return Err(form());
                }
                ProbePoint::Usdt { provider: provider.to_owned(), name: name.to_owned() }
            }
            _ => return Err(form()),
        };
        Ok(Self::new(PathBuf::from(path), point))
    }

    /// The same with a value.
    ///
    /// # Errors
    /// If the value is not known at its place.
    pub fn with_value(self, value: ProbeValue) -> Result<Self, InvalidProbe> {
        let elsewhere = |value, known| Err(InvalidProbe::ValueElsewhere { value, known });
        match (&self.point, &value.source) {
            (ProbePoint::Return { .. }, ProbeValueSource::Argument(_)) => {
                elsewhere("an argument", "when the function begins: use a uprobe")
            }
            (ProbePoint::Function { offset: 1.., .. }, ProbeValueSource::Argument(_)) => elsewhere(
                "an argument",
                "where the function begins; further on, give its register: %REGISTER",
            ),
            (ProbePoint::Function { .. } | ProbePoint::Usdt { .. }, ProbeValueSource::Result) => {
                elsewhere("retval", "when a function has returned: use a uretprobe")
            }
            _ => Ok(Self { value: Some(value), ..self }),
        }
    }

    /// The same with a unit of its values.
    ///
    /// # Errors
    /// If there is no value, or the unit is none of [`UNITS`](Self::UNITS).
    pub fn with_unit(self, unit: &str) -> Result<Self, InvalidProbe> {
        match self.value {
            Some(_) if Self::UNITS.contains(&unit) => Ok(Self { unit: Some(unit.to_owned()), ..self }),
            _ => Err(InvalidProbe::Unit),
        }
    }

    /// The same with another share of each CPU's time.
    ///
    /// # Errors
    /// If it is 0.
    pub fn with_max_overhead(self, share: Fraction) -> Result<Self, InvalidProbe> {
        if share.get() > 0.0 { Ok(Self { max_overhead: share, ..self }) } else { Err(InvalidProbe::Overhead) }
    }

    /// The type and path of a probe are words before the first two colons, and options are behind the last commas: C++ names
    /// have colons and commas, too.
    fn from_text(text: &str) -> Result<Self, InvalidProbe> {
        let (kind, rest) = text.split_once(':').ok_or_else(|| InvalidProbe::Form(text.to_owned()))?;
        let kind = kind.to_ascii_lowercase();
        if matches!(&*kind, "kprobe" | "kretprobe" | "tracepoint") {
            return Err(InvalidProbe::Kernel(kind));
        }
        let (path, mut symbol) = rest.split_once(':').ok_or_else(|| InvalidProbe::Form(text.to_owned()))?;
        let (mut value, mut unit, mut overhead) = (None, None, None);
        while let Some((before, option)) = symbol.rsplit_once(',') {
            match option.split_once('=') {
                Some(("value", given)) => value = Some(given.parse()?),
                Some(("unit", given)) => unit = Some(given),
                Some(("max_overhead", given)) => {
                    let share = given.parse().ok().and_then(|share| Fraction::new(share).ok());
                    overhead = Some(share.ok_or(InvalidProbe::Overhead)?);
                }
                _ => break,
            }
            symbol = before;
        }
        let mut probe = Self::from_parts(&kind, path, symbol)?;
        if let Some(value) = value {
            probe = probe.with_value(value)?;
        }
        if let Some(unit) = unit {
            probe = probe.with_unit(unit)?;
        }
        overhead.map_or(Ok(probe.clone()), |share| probe.with_max_overhead(share))
    }
}

/// `NAME+OFFSET`. A plus sign that nothing like a number follows belongs to the name: `operator+`.
fn split_offset(symbol: &str) -> Option<(&str, Result<u64, InvalidProbe>)> {
    let (name, digits) = symbol.rsplit_once('+')?;
    if name.is_empty()
        || name.ends_with("operator")
        || !digits.starts_with(|first: char| first.is_ascii_digit())
    {
        return None;
    }
    let offset = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    Some((name, offset.map_err(|_| InvalidProbe::Offset(digits.to_owned()))))
}

impl FromStr for ProbeSpec {
    type Err = InvalidProbe;

    fn from_str(text: &str) -> Result<Self, InvalidProbe> {
        Self::from_text(text)
    }
}

impl fmt::Display for ProbeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.kind(), self.path.display(), self.symbol())?;
        if let Some(value) = &self.value {
            write!(f, ",value={value}")?;
        }
        if let Some(unit) = &self.unit {
            write!(f, ",unit={unit}")?;
        }
        match self.max_overhead.get() {
            Self::MAX_OVERHEAD => Ok(()),
            share => write!(f, ",max_overhead={share}"),
        }
    }
}

impl FromStr for ProbeValue {
    type Err = InvalidProbe;

    fn from_str(text: &str) -> Result<Self, InvalidProbe> {
        let invalid = || InvalidProbe::Value(text.to_owned());
        let (source, integer) = text.split_once(':').map_or((text, None), |(source, of)| (source, Some(of)));
        let source = match source {
            "retval" => ProbeValueSource::Result,
            _ if source.len() > 1 && source.starts_with('%') => ProbeValueSource::Register(source.to_owned()),
            _ => {
                let index = source.strip_prefix("arg").and_then(|index| index.parse().ok());
                ProbeValueSource::Argument(index.ok_or_else(invalid)?)
            }
        };
        let parse_integer = |text: &str| {
            let (is_signed, bits) = match text.split_at_checked(1)? {
                ("u", bits) => (false, bits),
                ("s", bits) => (true, bits),
                _ => return None,
            };
            let bits = bits.parse().ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64))?;
            Some(ProbeInteger { bits, is_signed })
        };
        let integer = integer.map(|text| parse_integer(text).ok_or_else(invalid)).transpose()?;
        Ok(Self { source, integer })
    }
}

impl fmt::Display for ProbeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ProbeValueSource::Argument(index) => write!(f, "arg{index}")?,
            ProbeValueSource::Result => f.write_str("retval")?,
            ProbeValueSource::Register(name) => f.write_str(name)?,
        }
        self.integer.map_or(Ok(()), |ProbeInteger { bits, is_signed }| {
            write!(f, ":{}{bits}", if is_signed { 's' } else { 'u' })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(text: &str) -> Result<ProbeSpec, InvalidProbe> {
        text.parse()
    }

    #[test]
    fn a_probe_is_written_as_it_is_read() {
        for text in [
            "uprobe:/usr/bin/bash:readline",
            "uretprobe:/lib/libc.so.6:malloc,value=retval",
            "uprobe:/bin/a:main.checkout+0x10",
            "uprobe:/bin/a:shop::Cart::add(int, char const*),value=arg1:s32,unit=bytes",
            "uprobe:/bin/a:operator+",
            "uprobe:/bin/a:0x1234,value=%rdi:u8,max_overhead=0.5",
            "usdt:/bin/python3:python:gc__start,value=arg0",
        ] {
            assert_eq!(probe(text).map(|probe| probe.to_string()).as_deref(), Ok(text));
        }
        assert_eq!(probe("UPROBE:/bin/a:f+16").unwrap().to_string(), "uprobe:/bin/a:f+0x10");
    }

    #[test]
    fn a_profile_has_the_name_of_its_probe() {
        let name = |text| probe(text).unwrap().profile_name();
        assert_eq!(name("uprobe:/bin/a:shop::Cart::add(int)"), "uprobe_shop_Cart_add_int");
        assert_eq!(name("usdt:/bin/python3:python:gc__start"), "usdt_python_gc_start");
    }

    #[test]
    fn wrong_probes_are_refused_with_their_reason() {
        for (text, reason) in [
            ("malloc", "a probe is uprobe:PATH"),
            ("uprobe:/bin/a", "a probe is uprobe:PATH"),
            ("uprobe:/bin/a:", "a probe is uprobe:PATH"),
            ("uprobe::f", "a probe is uprobe:PATH"),
            ("probe:/bin/a:f", "a probe is uprobe:PATH"),
            ("usdt:/bin/a:name", "a probe is uprobe:PATH"),
            ("usdt:/bin/a::name", "a probe is uprobe:PATH"),
            ("kprobe:vfs_open", "probes in the kernel (kprobe)"),
            ("tracepoint:sched:sched_switch", "probes in the kernel (tracepoint)"),
            ("uprobe:bin/a:f", "is not absolute"),
            ("uprobe:/bin/a:f+9x", "is not a number of bytes"),
            ("uretprobe:/bin/a:f+8", "takes no offset"),
            ("uprobe:/bin/a:f,value=size", "a value is argN"),
            ("uprobe:/bin/a:f,value=arg0:u7", "a value is argN"),
            ("uprobe:/bin/a:f,value=arg0:", "a value is argN"),
            ("uprobe:/bin/a:f,value=retval", "use a uretprobe"),
            ("uretprobe:/bin/a:f,value=arg0", "use a uprobe"),
            ("uprobe:/bin/a:f+8,value=arg0", "give its register"),
            ("uprobe:/bin/a:f,unit=bytes", "needs a value"),
            ("uprobe:/bin/a:f,value=arg0,unit=cents", "a unit is bytes"),
            ("uprobe:/bin/a:f,max_overhead=0", "above 0"),
            ("uprobe:/bin/a:f,max_overhead=2", "above 0"),
        ] {
            let error = probe(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
