//! Keys of the counters that a receiver samples.

use sidewinder_kind::{Counter, CounterRate};

use super::fields::{FieldVisitor, KeyGroup};
use super::scalar::{InvalidScalar, Scalar, ValueShape, as_text};
use crate::diagnostics::ConfigProblem;
use crate::model::{CounterEvent, InvalidEvent, SamplesPerSecond};
use crate::tree::{ConfigNode, ConfigValue};

/// The list `events`: a few counters, each at most once.
pub(super) fn read_or_write(fields: &mut FieldVisitor<'_>, events: &mut Vec<CounterEvent>) {
    let mut forms: Vec<EventForm> = std::mem::take(events).into_iter().map(EventForm::from).collect();
    fields.groups("events", &mut forms);
    for event in forms.into_iter().filter_map(EventForm::finish) {
        if events.iter().any(|before| before.counter == event.counter) {
            let reason = format!("{} is given twice", event.counter);
            fields.error("events", ConfigProblem::Contradiction(reason));
        } else {
            events.push(event);
        }
    }
    if events.len() > Counter::SAMPLED_MAX {
        let reason =
            format!("has more than {} counters, which is all that a profiler samples", Counter::SAMPLED_MAX);
        fields.error("events", ConfigProblem::Contradiction(reason));
    }
}

impl Scalar for Counter {
    fn allowed() -> String {
        Self::NAMES.join(" | ")
    }

    fn shape() -> ValueShape {
        ValueShape::Word(Self::NAMES)
    }

    fn read(node: &ConfigNode) -> Result<Self, InvalidScalar> {
        let name = as_text(node).ok_or_else(InvalidScalar::default)?;
        Self::from_name(name).ok_or_else(|| InvalidScalar::new(InvalidEvent::name(name)))
    }

    fn write(&self) -> ConfigValue {
        ConfigValue::Text(self.name().to_owned())
    }
}

/// An event before it is known to name a counter.
#[derive(Default)]
struct EventForm {
    counter: Option<Counter>,
    period: Option<u64>,
    frequency: Option<SamplesPerSecond>,
}

impl From<CounterEvent> for EventForm {
    fn from(CounterEvent { counter, rate }: CounterEvent) -> Self {
        let (period, frequency) = match rate {
            Some(CounterRate::Period(period)) => (Some(period), None),
            Some(CounterRate::Frequency(hz)) => (None, SamplesPerSecond::new(hz).ok()),
            None => (None, None),
        };
        Self { counter: Some(counter), period, frequency }
    }
}

impl EventForm {
    fn finish(self) -> Option<CounterEvent> {
        let period = self.period.map(CounterRate::Period);
        let frequency = self.frequency.map(|hz| CounterRate::Frequency(hz.get()));
        self.counter.map(|counter| CounterEvent { counter, rate: period.or(frequency) })
    }
}

impl KeyGroup for EventForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let mut counter = self.counter.unwrap_or(Counter::PageFaults);
        let is_named = self.counter.is_some() || fields.is_given("name");
        fields.required("name", &mut counter);
        self.counter = is_named.then_some(counter);
        fields.choice(&["period", "frequency"], false, None);
        fields.optional("period", &mut self.period);
        fields.optional("frequency", &mut self.frequency);
    }
}
