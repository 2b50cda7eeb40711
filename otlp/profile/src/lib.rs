//! What a profile consists of, as OTLP has it, for whoever writes or reads one: the tables that samples refer to, the types of
//! samples and frames, the markers that stand for missing frames and for locks, and attributes.
#![forbid(unsafe_code)]

mod attributes;
mod dictionary;
mod frame_type;
mod index;
mod marker;
mod sample_type;
mod table;

pub use attributes::{AttributeValue, Attributes, StatedAttributes, Value, key};
pub use dictionary::{
    Attribute, BuildIds, Dictionary, DictionaryCopier, Frame, Function, Line, Link, Location, Mapping,
    SourceLine,
};
pub use frame_type::FrameType;
pub use index::{
    AttributeIndex, AttributeSetIndex, FrameIndex, FunctionIndex, LinkIndex, LocationIndex, MappingIndex,
    StackIndex, StringIndex,
};
pub use marker::{Marker, Truncation};
pub use sample_type::{Period, SampleType, ValueType};
pub use table::{Index, ListTable, StringTable, Table};
