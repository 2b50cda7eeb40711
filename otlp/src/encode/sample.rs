//! A sample to be encoded.

use sidewinder_profile::{AttributeSetIndex, LinkIndex, StackIndex};

/// A sample and its events. Its indices point into a dictionary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleRef<'a> {
    pub(crate) stack: StackIndex,
    pub(crate) attributes: AttributeSetIndex,
    pub(crate) link: LinkIndex,
    pub(crate) times_unix_ns: &'a [u64],
    pub(crate) values: &'a [i64],
}
