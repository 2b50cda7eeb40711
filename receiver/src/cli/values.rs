//! Values that several commands take, and how they are read.

use std::time::Duration;

use clap::ValueEnum;
use hex::FromHex;
use sidewinder_config::{InvalidProbe, ProbeSpec};
use sidewinder_kind::{CpuIds, InvalidCpuIds};
use sidewinder_render::NameStyle;
use sidewinder_text::escaped;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum UnwindArg {
    /// Frame pointers where they are proven, tables elsewhere
    Auto,
    /// Frame pointers only
    FramePointers,
    /// Tables only
    Tables,
}

/// How functions are named in output for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum NamesArg {
    /// Only what distinguishes them within the profile, for example `_Executor<…>::_M_dfs`
    Short,
    /// With namespaces, template arguments, parameters and packages
    Full,
}

impl From<NamesArg> for NameStyle {
    fn from(names: NamesArg) -> Self {
        match names {
            NamesArg::Short => Self::Short,
            NamesArg::Full => Self::Full,
        }
    }
}

/// The format in which a profile is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FormatArg {
    /// OpenTelemetry ProfilesData (.otlp)
    Otlp,
    /// pprof (.pb.gz)
    Pprof,
    /// Folded stacks, one per line (.folded)
    Folded,
    /// A flame graph as an image (.svg)
    Svg,
    /// The interactive page (.html)
    Html,
    /// Firefox Profiler (.firefox.json)
    Firefox,
    /// speedscope (.speedscope.json)
    Speedscope,
}

/// Parses a number of seconds, or a time with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .or_else(|| sidewinder_config::parse_duration(text))
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "not a duration; examples: 10, 2.5, 10s, 1m30s".to_owned())
}

/// Parses a list of CPUs. Nothing is the default, and stands for all.
pub(super) fn cpus(list: &str) -> Result<CpuIds, String> {
    list.parse().map_err(|error: InvalidCpuIds| format!("{error}; example: 0-3,8"))
}

pub(super) fn wait_fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| (f64::MIN_POSITIVE..=1.0).contains(fraction));
    fraction.ok_or_else(|| "not a fraction greater than 0 and at most 1".to_owned())
}

pub(super) fn probe(text: &str) -> Result<ProbeSpec, String> {
    text.parse().map_err(|error: InvalidProbe| escaped(&error.to_string()).into_owned())
}

/// A PID or a TID.
pub(super) fn process(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| "not a positive ID; use --comm to select processes by name".to_owned())
}

pub(super) fn identifier<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], String>
where
    [u8; BYTES]: FromHex,
{
    FromHex::from_hex(text).map_err(|_| format!("not {} hexadecimal digits", 2 * BYTES))
}

pub(super) fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "not a hexadecimal address; example: 0x1a2b".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_seconds_or_has_its_unit() {
        for (text, seconds) in [("10", 10.0), ("2.5", 2.5), ("10s", 10.0), ("1m30s", 90.0), ("500ms", 0.5)] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "0", "-1", "inf", "nan", "1e300", "10x", "s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_are_hexadecimal_with_or_without_a_prefix() {
        assert_eq!(address("0x1a2B"), Ok(0x1a2b));
        assert_eq!(address("1a2b"), Ok(0x1a2b));
        assert!(address("main").is_err());
    }
}
