//! The value of a hit of a probe: `argN`, `retval` or `%REGISTER`, with a type as `:u32` or `:s64` behind it.

use std::fmt;
use std::str::FromStr;

use super::InvalidProbe;

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
