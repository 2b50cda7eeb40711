//! Keys of probes.

use sidewinder_kind::SampledProbe;

use super::fields::{FieldVisitor, KeyGroup};
use super::scalar::{InvalidScalar, Scalar, ValueShape, as_text};
use crate::diagnostics::ConfigProblem;
use crate::model::{Fraction, InvalidProbe, ProbePlace, ProbePoint, ProbeSpec, ProbeValue};
use crate::tree::{ConfigNode, ConfigValue};

/// The list `probes`.
pub(super) fn read_or_write(fields: &mut FieldVisitor<'_>, probes: &mut Vec<ProbeSpec>) {
    let mut forms: Vec<ProbeForm> = std::mem::take(probes).into_iter().map(ProbeForm::from).collect();
    fields.groups("probes", &mut forms);
    *probes = forms.into_iter().filter_map(|form| form.probe).collect();
}

/// A probe in text: OpenTelemetry's `probe_links`.
impl Scalar for ProbeSpec {
    fn allowed() -> String {
        "uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, usdt:PATH:PROVIDER:NAME or tracepoint:CATEGORY:NAME"
            .to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        as_text(node).ok_or_else(InvalidScalar::default)?.parse().map_err(InvalidScalar::new)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.to_string())
    }
}

impl Scalar for ProbeValue {
    fn allowed() -> String {
        "argN, retval or %REGISTER, optionally with a type such as :u32 or :s64".to_owned()
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        as_text(node).ok_or_else(InvalidScalar::default)?.parse().map_err(InvalidScalar::new)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.to_string())
    }
}

/// The type of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ProbeKind {
    /// OpenTelemetry's type for all: `mode` is the type.
    Kprobe,
    #[default]
    Uprobe,
    Uretprobe,
    Usdt,
    Tracepoint,
}

impl ProbeKind {
    const WORDS: &[&str] = &["kprobe", "uprobe", "uretprobe", "usdt", "tracepoint"];

    const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

impl Scalar for ProbeKind {
    fn allowed() -> String {
        Self::WORDS.join(" | ")
    }

    fn shape() -> ValueShape {
        ValueShape::Word(Self::WORDS)
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        let word = as_text(node).ok_or_else(InvalidScalar::default)?.to_ascii_lowercase();
        let all = [Self::Kprobe, Self::Uprobe, Self::Uretprobe, Self::Usdt, Self::Tracepoint];
        all.into_iter().find(|kind| kind.word() == word).ok_or_else(InvalidScalar::default)
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.word().to_owned())
    }
}

/// A probe before it is known to be one.
#[derive(Default)]
struct ProbeForm {
    probe: Option<ProbeSpec>,
}

impl From<ProbeSpec> for ProbeForm {
    fn from(probe: ProbeSpec) -> Self {
        Self { probe: Some(probe) }
    }
}

impl KeyGroup for ProbeForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let known = self.probe.take();
        let mut kind = match known.as_ref().map(|probe| &probe.place) {
            None => ProbeKind::Uprobe,
            Some(ProbePlace::Tracepoint { .. }) => ProbeKind::Tracepoint,
            Some(ProbePlace::Program { point, .. }) => match point {
                ProbePoint::Function { .. } => ProbeKind::Uprobe,
                ProbePoint::Return { .. } => ProbeKind::Uretprobe,
                ProbePoint::Usdt { .. } => ProbeKind::Usdt,
            },
        };
        let (mut mode, mut target, mut symbol) = (None::<ProbeKind>, String::new(), String::new());
        let (mut value, mut unit) = (None, None);
        let mut max_overhead = Fraction::new(ProbeSpec::MAX_OVERHEAD).unwrap_or_default();
        if let Some(probe) = &known {
            target = probe.target();
            symbol = probe.symbol();
            (value, unit, max_overhead) = (probe.value.clone(), probe.unit.clone(), probe.max_overhead);
        }
        let is_complete = ["type", "symbol", "target"].into_iter().all(|key| fields.is_given(key));
        fields.required("type", &mut kind);
        fields.optional("mode", &mut mode);
        fields.required("target", &mut target);
        fields.required("symbol", &mut symbol);
        fields.optional("value", &mut value);
        fields.optional("unit", &mut unit);
        fields.value("max_overhead", &mut max_overhead);
        if let (None, true) = (&known, is_complete) {
            let kind = mode.unwrap_or(kind);
            self.probe = probe(kind, &target, &symbol, value, unit.as_deref(), max_overhead)
                .map_err(|error| fields.contradiction(&error.to_string()))
                .ok();
        } else {
            self.probe = known;
        }
    }
}

fn probe(
    kind: ProbeKind,
    target: &str,
    symbol: &str,
    value: Option<ProbeValue>,
    unit: Option<&str>,
    max_overhead: Fraction,
) -> Result<ProbeSpec, InvalidProbe> {
    if kind == ProbeKind::Kprobe {
        return Err(InvalidProbe::Kernel(kind.word().to_owned()));
    }
    let mut probe = ProbeSpec::from_parts(kind.word(), target, symbol)?.with_max_overhead(max_overhead)?;
    if let Some(value) = value {
        probe = probe.with_value(value)?;
    }
    unit.map_or(Ok(probe.clone()), |unit| probe.with_unit(unit))
}

/// Checks how many probes there are, and how many of them are at tracepoints.
pub(super) fn check_count<'spec>(
    fields: &mut FieldVisitor<'_>,
    probes: impl Iterator<Item = &'spec ProbeSpec> + Clone,
    loads_for_others: bool,
) {
    let (given, most) = (probes.clone().count() + usize::from(loads_for_others), SampledProbe::SAMPLED_MAX);
    let (tracepoints, most_tracepoints) =
        (probes.filter(|probe| probe.is_tracepoint()).count(), SampledProbe::TRACEPOINTS_MAX);
    let reason = if given > most {
        format!("with probe_links and load_probe, {given} are more than the {most} probes of one profiler")
    } else if tracepoints > most_tracepoints {
        format!(
            "with probe_links, {tracepoints} are more than the {most_tracepoints} tracepoints of one profiler"
        )
    } else {
        return;
    };
    fields.error("probes", ConfigProblem::Contradiction(reason));
}
