//! What a profile consists of, as OTLP has it, for whoever writes or reads one: the types of its samples and frames, the
//! markers that stand for missing frames and for locks, and attributes.
#![forbid(unsafe_code)]

mod attributes;
mod frame_type;
mod marker;
mod sample_type;

pub use attributes::{AttributeSet, AttributeValue, Attributes};
pub use frame_type::FrameType;
pub use marker::{Marker, Truncation};
pub use sample_type::{Period, SampleType, ValueType};
