//! Typed indices of the tables of a profile.

use crate::table::Index;

macro_rules! indices {
    ($($(#[$meta:meta])* $name:ident,)*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub u32);

        impl Index for $name {
            fn from_position(position: u32) -> Self {
                Self(position)
            }

            fn position(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

indices! {
    /// A string. 0: the empty one.
    StringIndex,
    /// An attribute. 0: none.
    AttributeIndex,
    /// A set of attributes. 0: the empty one.
    AttributeSetIndex,
    /// A mapping. 0: none.
    MappingIndex,
    /// A function. 0: unknown.
    FunctionIndex,
    /// A location. 0: unknown.
    LocationIndex,
    /// A frame: a function at a location.
    FrameIndex,
    /// A stack. 0: the empty one.
    StackIndex,
    /// A span of a trace. 0: none.
    LinkIndex,
}
