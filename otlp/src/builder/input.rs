//! The input of a builder: everything about an event but its time and value.

use sidewinder_kind::{Kind, KindDescriptor, SampleShape};
use sidewinder_profile::{AttributeSetIndex, Dictionary, LinkIndex, SampleType, StackIndex, Value, key};

/// The index of a type of profile in a builder. Valid for the builder that returned it, also for later reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileTypeIndex(pub(super) u32);

/// The attributes of a sample. Each is optional, because receivers may create a series for each distinct set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampleAttributes<'a> {
    /// The thread id, in the namespace of the report.
    pub thread_id: Option<i64>,
    /// The name of the thread.
    pub thread_name: Option<&'a str>,
    /// The logical number of the CPU.
    pub cpu: Option<u32>,
    /// Why the stack is incomplete; `None` if it is complete.
    pub outcome: Option<&'a str>,
    /// Other attributes, with few distinct values. Of two values of a key, the first counts, and the ones above before it.
    pub extra: &'a [(&'a str, Value<'a>)],
}

impl SampleAttributes<'_> {
    /// Adds them as a set.
    pub fn add_to(&self, dictionary: &mut Dictionary) -> AttributeSetIndex {
        let named = [
            (key::THREAD_ID, self.thread_id.map(Value::Int)),
            (key::THREAD_NAME, self.thread_name.map(Value::Str)),
            (key::CPU, self.cpu.map(|cpu| Value::Int(i64::from(cpu)))),
            (key::STACK_OUTCOME, self.outcome.map(Value::Str)),
        ];
        let named = named.into_iter().filter_map(|(key, value)| Some((key, value?)));
        dictionary.add_attributes(named.chain(self.extra.iter().copied()))
    }
}

/// What the samples of a profile count, and what is sent of each event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileType {
    /// The sample type and the period.
    pub sample_type: SampleType,
    /// The data of each event.
    pub shape: SampleShape,
    /// Tools show the first profile by default: profiles are sent in ascending rank.
    pub display_rank: u8,
}

impl From<Kind> for ProfileType {
    fn from(kind: Kind) -> Self {
        let KindDescriptor { shape, display_rank, .. } = kind.descriptor();
        Self { sample_type: SampleType::from_kind(kind), shape, display_rank }
    }
}

/// What the events of one sample have in common: everything except time and value. Its indices point into the dictionary of the
/// report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SampleIdentity {
    /// The attributes of the resource that the events belong to.
    pub resource: AttributeSetIndex,
    /// What the value of an event counts, and what is sent of it.
    pub profile_type: ProfileTypeIndex,
    /// The stack.
    pub stack: StackIndex,
    /// Further attributes.
    pub attributes: AttributeSetIndex,
    /// The span that was active, if there was one.
    pub link: LinkIndex,
}
