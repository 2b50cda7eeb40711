//! Profiles as they are decoded: a small owned model, for tests and for display.

use std::sync::Arc;

use sidewinder_profile::{AttributeValue, Attributes, FrameType, Link, key};

/// A range of a file that is mapped into memory.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct DecodedMapping {
    /// The address of its first byte.
    pub memory_start: u64,
    /// The address after its last byte.
    pub memory_limit: u64,
    /// The file offset of its first byte.
    pub file_offset: u64,
    /// The name of the file.
    pub filename: Arc<str>,
    /// The build IDs, and any other attributes.
    pub attributes: Attributes,
}

impl DecodedMapping {
    /// `process.executable.build_id.htlhash`.
    #[must_use]
    pub fn htlhash(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_HTLHASH)?.as_str()
    }

    /// `process.executable.build_id.gnu`.
    #[must_use]
    pub fn gnu_build_id(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_GNU)?.as_str()
    }

    /// `process.executable.build_id.go`.
    #[must_use]
    pub fn go_build_id(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_GO)?.as_str()
    }
}

/// A function, and a position in it.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct DecodedLine {
    /// The readable name.
    pub function: Arc<str>,
    /// The linker name.
    pub system_name: Arc<str>,
    /// The source file.
    pub filename: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: i64,
    /// The column, from 1; 0 if unknown.
    pub column: i64,
}

/// One frame of a stack.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedFrame {
    /// The mapping that contains `address`, if any.
    pub mapping: Option<Arc<DecodedMapping>>,
    /// Within the mapping's memory.
    pub address: u64,
    /// The function at `address` comes last, preceded by those inlined into it.
    pub lines: Vec<DecodedLine>,
    /// The frame type, and any other attributes.
    pub attributes: Arc<Attributes>,
}

impl DecodedFrame {
    /// `profile.frame.type`, if the conventions define its value.
    #[must_use]
    pub fn frame_type(&self) -> Option<FrameType> {
        FrameType::from_wire(self.attributes.get(key::FRAME_TYPE)?.as_str()?)
    }

    /// Whether nothing proves that it is the caller of the previous frame.
    #[must_use]
    pub fn is_guessed(&self) -> bool {
        self.attributes.get(key::FRAME_GUESSED) == Some(&AttributeValue::Bool(true))
    }

    /// Whether a process generated its code, if the type doesn't say by which runtime.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        self.attributes.get(key::FRAME_GENERATED) == Some(&AttributeValue::Bool(true))
    }

    /// Whether its name is words of the profiler, and not a function's; `None` if it does not say so.
    #[must_use]
    pub fn is_marker(&self) -> Option<bool> {
        match self.attributes.get(key::FRAME_MARKER)? {
            AttributeValue::Bool(is_marker) => Some(*is_marker),
            _ => None,
        }
    }

    /// The file offset of `address`.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        let mapping = self.mapping.as_ref()?;
        self.address.checked_sub(mapping.memory_start)?.checked_add(mapping.file_offset)
    }

    /// The name of the function at `address`, if it has one.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        self.lines.last().map(|line| &*line.function).filter(|name| !name.is_empty())
    }
}

/// One profile: samples of one kind for one resource.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedProfile {
    /// The resource.
    pub resource: Arc<Attributes>,
    /// The sample type, such as `samples` or `off_cpu`.
    pub sample_type: Arc<str>,
    /// The unit of the values, such as `count` or `nanoseconds`.
    pub sample_unit: Arc<str>,
    /// The period type, such as `cpu`.
    pub period_type: Arc<str>,
    /// The unit of the period, such as `nanoseconds`.
    pub period_unit: Arc<str>,
    /// The period, in the unit of the period type.
    pub period: i64,
    /// The start of the covered time.
    pub time_unix_ns: u64,
    /// The length of the covered time.
    pub duration_ns: u64,
    /// The profile ID; receivers drop profiles whose ID they have already seen.
    pub profile_id: Vec<u8>,
    /// The samples.
    pub samples: Vec<DecodedSample>,
}

impl DecodedProfile {
    /// The events of all samples. A sample without timestamps is one event, at the start of the profile.
    pub fn events(&self) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.samples.iter().flat_map(move |sample| {
            let event = move |time_unix_ns, at| {
                let value = sample.values.get(at).copied().unwrap_or(1);
                DecodedEvent { profile: self, sample, time_unix_ns, value }
            };
            let times = sample.timestamps_unix_ns.iter().enumerate();
            let sum = sample.timestamps_unix_ns.is_empty().then(|| event(self.time_unix_ns, 0));
            times.map(move |(at, &time_unix_ns)| event(time_unix_ns, at)).chain(sum)
        })
    }
}

/// The events of one stack, attribute set and link.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedSample {
    /// Leaf first.
    pub stack: Arc<[Arc<DecodedFrame>]>,
    /// The thread, the CPU, the outcome, and any other attributes.
    pub attributes: Arc<Attributes>,
    /// The span that was active.
    pub link: Option<Link>,
    /// One for each event. Empty if events were summed.
    pub timestamps_unix_ns: Vec<u64>,
    /// One for each event, or one for all. Empty if events are only counted.
    pub values: Vec<i64>,
}

impl DecodedSample {
    /// `thread.id`.
    #[must_use]
    pub fn thread_id(&self) -> Option<i64> {
        self.attributes.get(key::THREAD_ID)?.as_int()
    }

    /// `thread.name`.
    #[must_use]
    pub fn thread_name(&self) -> Option<&str> {
        self.attributes.get(key::THREAD_NAME)?.as_str()
    }

    /// `cpu.logical_number`.
    #[must_use]
    pub fn cpu(&self) -> Option<i64> {
        self.attributes.get(key::CPU)?.as_int()
    }

    /// Why the stack is incomplete; `None` if it is complete.
    #[must_use]
    pub fn outcome(&self) -> Option<&str> {
        self.attributes.get(key::STACK_OUTCOME)?.as_str()
    }
}

/// One event with all its attributes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DecodedEvent<'a> {
    /// The profile that it is in.
    pub profile: &'a DecodedProfile,
    /// The sample that it is in.
    pub sample: &'a DecodedSample,
    /// Its time.
    pub time_unix_ns: u64,
    /// Its value; 1 if events are only counted. For a sample without timestamps, the value of all its events.
    pub value: i64,
}
