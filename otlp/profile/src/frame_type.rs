//! The language or runtime of a frame.

macro_rules! frame_types {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The language or runtime of a frame (`profile.frame.type`).
        ///
        /// Use the most precise known type: Rust code is `Rust`, not `Native`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub enum FrameType { $($(#[$meta])* $name,)* }

        impl FrameType {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in the message.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

frame_types! {
    /// Machine code of an unknown language.
    #[default]
    Native = "native",
    /// The kernel.
    Kernel = "kernel",
    /// Rust.
    Rust = "rust",
    /// Go.
    Go = "go",
    /// CPython.
    CPython = "cpython",
    /// A Java virtual machine.
    Jvm = "jvm",
    /// V8, as in Node.js.
    V8js = "v8js",
    /// Ruby.
    Ruby = "ruby",
    /// PHP.
    Php = "php",
    /// Perl.
    Perl = "perl",
    /// .NET.
    Dotnet = "dotnet",
    /// The virtual machine of Erlang.
    Beam = "beam",
    /// LuaJIT.
    LuaJit = "luajit",
}

impl FrameType {
    /// The type with this name.
    #[must_use]
    pub fn from_wire(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|frame_type| frame_type.as_str() == name)
    }
}
