//! The generated messages, under this crate's names for them.
//!
//! No other module refers to the crate that generates them.

pub(crate) use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
pub(crate) use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValueKind;
pub(crate) use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
pub(crate) use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
pub(crate) use opentelemetry_proto::tonic::resource::v1::Resource;

/// The schema URL of the semantic conventions for attributes.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// A string as the value of an attribute.
pub(crate) fn string_value(text: &str) -> AnyValue {
    AnyValue { value: Some(AnyValueKind::StringValue(text.to_owned())) }
}
