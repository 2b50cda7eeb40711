//! Probes that users place in programs, and at tracepoints of the kernel.
//!
//! In text, a probe is `TYPE:PATH:FUNCTION[+OFFSET]`, `usdt:PATH:PROVIDER:NAME` or `tracepoint:CATEGORY:NAME`, as
//! OpenTelemetry's profiler and bpftrace write it, with options after commas: `,value=arg0:u32,unit=bytes,max_overhead=0.01`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Fraction, InvalidProbe, ProbeValue, ProbeValueSource};

/// A probe.
#[derive(Clone, PartialEq, Debug)]
pub struct ProbeSpec {
    /// Where it is hit.
    pub place: ProbePlace,
    /// The value of a hit; `None`: hits are counted.
    pub value: Option<ProbeValue>,
    /// The unit of the values; `None`: they are counts.
    pub unit: Option<String>,
    /// The share of each CPU's time that its samples may take, beyond which fewer hits are sampled.
    pub max_overhead: Fraction,
}

/// Where a probe is hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbePlace {
    /// In programs.
    Program {
        /// The file with the place, as a path that the profiled processes see.
        path: PathBuf,
        /// The place in it.
        point: ProbePoint,
    },
    /// At a tracepoint of the kernel.
    Tracepoint {
        /// Its category, for readers: names are unique without it.
        category: String,
        /// Its name.
        name: String,
    },
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

impl ProbeSpec {
    /// The default of `max_overhead`.
    pub const MAX_OVERHEAD: f64 = 0.02;
    /// The units of values.
    pub const UNITS: &[&str] = &["bytes", "nanoseconds", "count"];

    /// A probe that counts hits.
    #[must_use]
    pub fn new(place: ProbePlace) -> Self {
        let max_overhead = Fraction::new(Self::MAX_OVERHEAD).unwrap_or_default();
        Self { place, value: None, unit: None, max_overhead }
    }

    /// The word for its type.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match &self.place {
            ProbePlace::Program { point: ProbePoint::Function { .. }, .. } => "uprobe",
            ProbePlace::Program { point: ProbePoint::Return { .. }, .. } => "uretprobe",
            ProbePlace::Program { point: ProbePoint::Usdt { .. }, .. } => "usdt",
            ProbePlace::Tracepoint { .. } => "tracepoint",
        }
    }

    /// What it is in: the path of a file, or the category of a tracepoint.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.place {
            ProbePlace::Program { path, .. } => path.to_string_lossy().into_owned(),
            ProbePlace::Tracepoint { category, .. } => category.clone(),
        }
    }

    /// What is behind the target: the function, or provider and name, or the name of a tracepoint.
    #[must_use]
    pub fn symbol(&self) -> String {
        match &self.place {
            ProbePlace::Program { point, .. } => point.symbol(),
            ProbePlace::Tracepoint { name, .. } => name.clone(),
        }
    }

    /// Whether it is at a tracepoint of the kernel.
    #[must_use]
    pub const fn is_tracepoint(&self) -> bool {
        matches!(self.place, ProbePlace::Tracepoint { .. })
    }

    /// The name of its profile: letters, digits and single underscores.
    #[must_use]
    pub fn profile_name(&self) -> String {
        let text = match &self.place {
            ProbePlace::Program { point, .. } => format!("{} {}", self.kind(), point.symbol()),
            ProbePlace::Tracepoint { category, name } => format!("{} {category} {name}", self.kind()),
        };
        let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join("_")
    }

    /// The probe of a type at a symbol of a file, or at a tracepoint of a category.
    ///
    /// # Errors
    /// If there is no such type, or it has no such symbols.
    pub fn from_parts(kind: &str, target: &str, symbol: &str) -> Result<Self, InvalidProbe> {
        let form = || InvalidProbe::Form(format!("{kind}:{target}:{symbol}"));
        if symbol.is_empty() || target.is_empty() {
            return Err(form());
        }
        if kind == "tracepoint" {
            return tracepoint(target, symbol).ok_or_else(form)?.map(Self::new);
        }
        if !target.starts_with('/') {
            return Err(InvalidProbe::RelativePath(target.to_owned()));
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
        Ok(Self::new(ProbePlace::Program { path: PathBuf::from(target), point }))
    }

    /// The same with a value.
    ///
    /// # Errors
    /// If the value is not known at its place.
    pub fn with_value(self, value: ProbeValue) -> Result<Self, InvalidProbe> {
        let elsewhere = |value, known| Err(InvalidProbe::ValueElsewhere { value, known });
        let point = match &self.place {
            ProbePlace::Program { point, .. } => Some(point),
            ProbePlace::Tracepoint { .. } => None,
        };
        match (point, &value.source) {
            (None, ProbeValueSource::Register(_) | ProbeValueSource::Result) => {
                elsewhere("this value", "in programs: a tracepoint has arguments, arg0 and so on")
            }
            (Some(ProbePoint::Return { .. }), ProbeValueSource::Argument(_)) => {
                elsewhere("an argument", "when the function begins: use a uprobe")
            }
            (Some(ProbePoint::Function { offset: 1.., .. }), ProbeValueSource::Argument(_)) => elsewhere(
                "an argument",
                "where the function begins; further on, give its register: %REGISTER",
            ),
            (Some(ProbePoint::Function { .. } | ProbePoint::Usdt { .. }), ProbeValueSource::Result) => {
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

    /// The type and target of a probe are words before the first two colons, and options are behind the last commas: C++ names
    /// have colons and commas, too.
    fn from_text(text: &str) -> Result<Self, InvalidProbe> {
        let (kind, rest) = text.split_once(':').ok_or_else(|| InvalidProbe::Form(text.to_owned()))?;
        let kind = kind.to_ascii_lowercase();
        if matches!(&*kind, "kprobe" | "kretprobe") {
            return Err(InvalidProbe::Kernel(kind));
        }
        let (target, mut symbol) = rest.split_once(':').ok_or_else(|| InvalidProbe::Form(text.to_owned()))?;
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
        let mut probe = Self::from_parts(&kind, target, symbol)?;
        if let Some(value) = value {
            probe = probe.with_value(value)?;
        }
        if let Some(unit) = unit {
            probe = probe.with_unit(unit)?;
        }
        overhead.map_or(Ok(probe.clone()), |share| probe.with_max_overhead(share))
    }
}

impl ProbePoint {
    /// The function, or provider and name.
    fn symbol(&self) -> String {
        match self {
            Self::Function { name, offset: 0 } | Self::Return { name } => name.clone(),
            Self::Function { name, offset } => format!("{name}+{offset:#x}"),
            Self::Usdt { provider, name } => format!("{provider}:{name}"),
        }
    }
}

/// The tracepoint of this name; `None` if the words can't be names of the kernel.
fn tracepoint(category: &str, name: &str) -> Option<Result<ProbePlace, InvalidProbe>> {
    let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name(category) || !is_name(name) {
        return None;
    }
    if category == "syscalls" {
        return Some(Err(InvalidProbe::SystemCall(format!("{category}:{name}"))));
    }
    Some(Ok(ProbePlace::Tracepoint { category: category.to_owned(), name: name.to_owned() }))
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
        write!(f, "{}:{}:{}", self.kind(), self.target(), self.symbol())?;
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
            "tracepoint:raw_syscalls:sys_exit,value=arg1:s32,unit=bytes",
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
        assert_eq!(name("tracepoint:sched:sched_switch"), "tracepoint_sched_sched_switch");
    }

    #[test]
    fn wrong_probes_are_refused_with_their_reason() {
        for (text, reason) in [
            ("malloc", "is not a probe; use uprobe:PATH"),
            ("uprobe:/bin/a", "is not a probe; use uprobe:PATH"),
            ("uprobe:/bin/a:", "is not a probe; use uprobe:PATH"),
            ("uprobe::f", "is not a probe; use uprobe:PATH"),
            ("probe:/bin/a:f", "is not a probe; use uprobe:PATH"),
            ("usdt:/bin/a:name", "is not a probe; use uprobe:PATH"),
            ("usdt:/bin/a::name", "is not a probe; use uprobe:PATH"),
            ("kprobe:vfs_open", "kernel function probes (kprobe)"),
            ("tracepoint:sched_switch", "tracepoint:CATEGORY:NAME"),
            ("tracepoint:sched:sched-switch", "tracepoint:CATEGORY:NAME"),
            ("tracepoint:syscalls:sys_enter_openat", "tracepoint:raw_syscalls:sys_enter, whose arg1"),
            ("tracepoint:sched:sched_switch,value=%rdi", "a tracepoint has arguments"),
            ("tracepoint:sched:sched_switch,value=retval", "a tracepoint has arguments"),
            ("uprobe:bin/a:f", "is not absolute"),
            ("uprobe:/bin/a:f+9x", "is not a number of bytes"),
            ("uretprobe:/bin/a:f+8", "takes no offset"),
            ("uprobe:/bin/a:f,value=size", "use argN, retval"),
            ("uprobe:/bin/a:f,value=arg0:u7", "use argN, retval"),
            ("uprobe:/bin/a:f,value=arg0:", "use argN, retval"),
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
