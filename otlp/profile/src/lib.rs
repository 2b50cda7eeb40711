//! What a profile consists of, as OTLP has it, for whoever writes or reads one: the types of its samples and frames, and the
//! markers that stand for missing frames and for locks.
#![forbid(unsafe_code)]

mod frame_type;
mod marker;
mod sample_type;

pub use frame_type::FrameType;
pub use marker::{Marker, Truncation};
pub use sample_type::{Period, SampleType, ValueType};
