//! The generated messages, under this crate's names for them.
//!
//! No other module refers to the crate that generates them.

pub(crate) use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceResponse,
};
pub(crate) use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValueKind;
pub(crate) use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
pub(crate) use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
pub(crate) use opentelemetry_proto::tonic::resource::v1::Resource;
use sidewinder_profile::StringIndex;

/// The schema URL of the semantic conventions for attributes.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

/// The method of gRPC that takes profiles.
pub(crate) const EXPORT_METHOD: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
/// The header with the version of the signal, and the version that this crate writes and reads. Receivers refuse requests with
/// another version than theirs; without the header, it is 1.
pub(crate) const DEVELOPMENT_VERSION_KEY: &str = "otlp-profiles-development-version";
pub(crate) const DEVELOPMENT_VERSION: &str = "1";

/// The index of a string in a message that is not renumbered yet: the same as in its dictionary.
pub(crate) fn strindex(string: StringIndex) -> i32 {
    i32::try_from(string.0).unwrap_or(0)
}

/// The inverse of [`strindex`].
pub(crate) fn string_index(strindex: i32) -> StringIndex {
    StringIndex(u32::try_from(strindex).unwrap_or(0))
}

/// A string as the value of an attribute.
pub(crate) fn string_value(text: &str) -> AnyValue {
    AnyValue { value: Some(AnyValueKind::StringValue(text.to_owned())) }
}
