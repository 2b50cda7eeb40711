//! The probes of a run: each is a kind of profile, with the place in programs or in the kernel that the user gave for it.

use std::path::PathBuf;

use sidewinder_bpf::{NumericArgument, TracepointError};
use sidewinder_config::{ProbePlace, ProbePoint, ProbeSpec, ProbeValue, ProbeValueSource};
use sidewinder_kind::SampledProbe;
use sidewinder_symbolize::{
    Image, Operand, OperandAt, ProbeSite, SiteError, argument, find_function, find_return, find_usdt,
    register, result,
};
use thiserror::Error;

/// The profile of hits of a program that others attach.
const EXTERNAL_NAME: &str = "events";

/// A probe. Its index among those of a run is the one by which the eBPF programs know it.
#[derive(Clone, PartialEq, Debug)]
pub struct UserProbe {
    /// The kind of profile that its hits are.
    pub sampled: SampledProbe,
    /// `None`: others attach the program.
    pub(crate) spec: Option<ProbeSpec>,
}

impl UserProbe {
    /// The probes of a run. The one that others attach is the first: without a cookie, hits belong to that.
    pub fn list<'spec>(
        specs: impl IntoIterator<Item = &'spec ProbeSpec>,
        loads_for_others: bool,
    ) -> Vec<Self> {
        let mut probes: Vec<Self> = Vec::new();
        if loads_for_others {
            probes.push(Self { sampled: SampledProbe::new(EXTERNAL_NAME, None), spec: None });
        }
        for spec in specs {
            let unit = spec.unit.as_deref();
            let name = spec.profile_name();
            let is_free = |name: &str| probes.iter().all(|other| other.sampled.name() != name);
            let numbered = (2..).map(|number| SampledProbe::new(&format!("{name}_{number}"), unit));
            let sampled = std::iter::once(SampledProbe::new(&name, unit))
                .chain(numbered.take(SampledProbe::SAMPLED_MAX))
                .find(|sampled| is_free(sampled.name()));
            let sampled = sampled.unwrap_or_else(|| SampledProbe::new(&name, unit));
            probes.push(Self { sampled, spec: Some(spec.clone()) });
        }
        probes
    }

    /// Whether it is at a tracepoint of the kernel.
    pub fn is_tracepoint(&self) -> bool {
        self.spec.as_ref().is_some_and(ProbeSpec::is_tracepoint)
    }

    /// The tracepoint of the kernel that it is at.
    pub(crate) fn tracepoint(&self) -> Option<Tracepoint> {
        let spec = self.spec.as_ref()?;
        match &spec.place {
            ProbePlace::Tracepoint { name, .. } => {
                Some(Tracepoint { name: name.clone(), value: spec.value.clone() })
            }
            ProbePlace::Program { .. } => None,
        }
    }

    /// The file and the place in it of a probe in programs, and its value.
    pub(crate) fn in_programs(&self) -> Option<ProgramProbe> {
        let spec = self.spec.as_ref()?;
        match &spec.place {
            ProbePlace::Program { path, point } => {
                Some(ProgramProbe { path: path.clone(), point: point.clone(), value: spec.value.clone() })
            }
            ProbePlace::Tracepoint { .. } => None,
        }
    }
}

/// A tracepoint of the kernel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tracepoint {
    pub(crate) name: String,
    value: Option<ProbeValue>,
}

impl Tracepoint {
    /// The argument that is its value, with the type that the user gave for it, or that the kernel gives.
    ///
    /// # Errors
    /// If the argument is not known, or no number.
    pub(crate) fn value(&self) -> Result<Option<NumericArgument>, TracepointError> {
        let Some(ProbeValue { source: ProbeValueSource::Argument(index), integer }) = &self.value else {
            return Ok(None);
        };
        let found = NumericArgument::find(&self.name, *index)?;
        Ok(Some(match integer {
            Some(integer) => NumericArgument { bits: integer.bits, is_signed: integer.is_signed, ..found },
            None => found,
        }))
    }
}

/// A probe in programs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ProgramProbe {
    /// The file, as the profiled processes see it.
    pub(crate) path: PathBuf,
    pub(crate) point: ProbePoint,
    value: Option<ProbeValue>,
}

/// Why a file has no place for a probe.
#[derive(Debug, Error)]
pub enum PlaceError {
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The value is nowhere that the programs can read.
    #[error("its value {0} is not in a register, in memory or constant there")]
    Value(ProbeValue),
}

/// The places of a probe in a file, each with the operand of its value.
///
/// # Errors
/// If it has none there, or its value can't be read.
pub(crate) fn find_places(
    probe: &ProgramProbe,
    image: &Image,
) -> Result<Vec<(ProbeSite, Option<Operand>)>, PlaceError> {
    let sites = match &probe.point {
        ProbePoint::Function { name, offset } => vec![find_function(image, name, *offset)?],
        ProbePoint::Return { name } => vec![find_return(image, name)?],
        ProbePoint::Usdt { provider, name } => find_usdt(image, provider, name)?,
    };
    let with_operand = |site: ProbeSite| {
        let operand = probe.value.as_ref().map(|value| operand(probe, value, &site)).transpose()?;
        Ok((site, operand))
    };
    sites.into_iter().map(with_operand).collect()
}

/// Where the value of a probe is in one of its places.
fn operand(probe: &ProgramProbe, value: &ProbeValue, site: &ProbeSite) -> Result<Operand, PlaceError> {
    let whole = |at: OperandAt| Operand { at, bits: 64, is_signed: false };
    let found = match (&probe.point, &value.source) {
        (ProbePoint::Usdt { .. }, ProbeValueSource::Argument(index)) => {
            site.arguments.get(usize::from(*index)).copied().flatten()
        }
        (_, ProbeValueSource::Argument(index)) => argument((*index).into()).map(whole),
        (_, ProbeValueSource::Result) => Some(whole(result())),
        (_, ProbeValueSource::Register(name)) => register(name).map(whole),
    };
    let found = found.ok_or_else(|| PlaceError::Value(value.clone()))?;
    Ok(match value.integer {
        Some(integer) => Operand { bits: integer.bits, is_signed: integer.is_signed, ..found },
        None => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_of_the_same_name_are_numbered() {
        let spec = |text: &str| text.parse::<ProbeSpec>().unwrap();
        let specs = ["uprobe:/a:f", "uprobe:/b:f", "uprobe:/a:g"].map(spec);
        let names: Vec<_> =
            UserProbe::list(&specs, true).into_iter().map(|probe| probe.sampled.name()).collect();
        assert_eq!(names, ["events", "uprobe_f", "uprobe_f_2", "uprobe_g"]);
    }
}
