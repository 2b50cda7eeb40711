//! Typed indices of the tables of a profile.

/// Declares types of [indices](crate::Index).
#[macro_export]
macro_rules! index_types {
    ($($(#[$meta:meta])* $vis:vis $name:ident,)*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        $vis struct $name($vis u32);

        impl $crate::Index for $name {
            fn from_position(position: u32) -> Self {
                Self(position)
            }

            fn position(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

index_types! {
    /// A string. 0: the empty one.
    pub StringIndex,
    /// An attribute. 0: none.
    pub AttributeIndex,
    /// A set of attributes. 0: the empty one.
    pub AttributeSetIndex,
    /// A mapping. 0: none.
    pub MappingIndex,
    /// A function. 0: unknown.
    pub FunctionIndex,
    /// A location. 0: unknown.
    pub LocationIndex,
    /// A frame: a function at a location.
    pub FrameIndex,
    /// A stack. 0: the empty one.
    pub StackIndex,
    /// A span of a trace. 0: none.
    pub LinkIndex,
}
