//! Checks encoded OTLP profiles against the rules for emitters.
//!
//! The rule numbers are the project's own; the sources are the comments of `profiles.proto`, the semantic conventions and
//! what receivers are known to refuse.
//!
//! | Rule | Says                                                                               |
//! |------|------------------------------------------------------------------------------------|
//! | 0    | The bytes are a message of profiles                                                |
//! | 1    | Element 0 of all seven tables is present and the zero value                        |
//! | 2    | No table holds two elements of equal value                                         |
//! | 3    | Every element is reached from a profile                                            |
//! | 4    | Every index is within its table                                                    |
//! | 5    | Keys are unique in every list of attributes                                        |
//! | 6    | Attributes of resources and scopes are inline: a key, no index of one              |
//! | 7    | Units are UCUM                                                                     |
//! | 8    | No attribute is a float or a map                                                   |
//! | 9    | One `ResourceProfiles` for each resource                                           |
//! | 10   | No request, resource, scope or profile is empty                                    |
//! | 11   | A CPU profile comes first                                                          |
//! | 12   | `schema_url` is set on both levels                                                 |
//! | 13   | A profile has one sample type                                                      |
//! | 14   | `profile_id` is 16 bytes, not all zero, and unique                                 |
//! | 15   | `original_payload` is not used                                                     |
//! | 16   | `time_unix_nano` is a time, `period` is in the period type's unit                  |
//! | 17   | A sample has values or timestamps                                                  |
//! | 18   | Where it has both, equally many                                                    |
//! | 19   | Where it has values only, exactly one                                              |
//! | 20   | No profile has two samples of the same stack, attributes and link                  |
//! | 21   | All samples of a profile have the same shape                                       |
//! | 22   | Timestamps are within the time of the profile                                      |
//! | 23   | A link has a trace id of 16 and a span id of 8 bytes                               |
//! | 24   | Stacks are leaf first: the kernel before user space, the marker of a truncation last |
//! | 25   | An address is within its mapping                                                   |
//! | 26   | Lines and columns count from 1; 0 is unset, for the column where the line is unset |
//! | 27   | A mapping starts before its limit, or both are 0                                   |
//! | 28   | A function has a name, a system name or a file name                                |
//! | 29   | A mapping has well-formed build IDs, the htlhash among them                        |

mod dictionary;
mod envelope;
mod findings;
mod references;
mod samples;
#[cfg(test)]
mod tests;
mod units;
mod walk;

use prost::Message;

use crate::wire::ProfilesData;
use dictionary::CanonicalIndices;
pub use findings::Violation;
use findings::Violations;
pub use units::is_value_unit;

/// Returns the rules that an encoded `ProfilesData` or `ExportProfilesServiceRequest` breaks; empty for a conforming
/// message.
#[must_use]
pub fn check(message: &[u8]) -> Vec<Violation> {
    match ProfilesData::decode(message) {
        Ok(data) => check_data(&data),
        Err(error) => {
            vec![Violation { rule: 0, path: "message".to_owned(), problem: error.to_string() }]
        }
    }
}

fn check_data(data: &ProfilesData) -> Vec<Violation> {
    let mut findings = Violations::default();
    let dictionary = data.dictionary.clone().unwrap_or_default();
    let canonical = CanonicalIndices::new(&dictionary);
    dictionary::check(&dictionary, &canonical, &mut findings);
    references::check(&dictionary, data, &mut findings);
    envelope::check(&dictionary, data, &mut findings);
    samples::check(&dictionary, &canonical, data, &mut findings);
    findings.0
}
