//! The category of a frame's code, by which output for people tells frames apart.

use sidewinder_profile::{Frame, FrameType, MappingIndex, Marker};

/// The category of a frame's code, which output for people tells apart. It follows from the frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameCategory {
    /// Compiled code of an unknown language: C, C++, assembly.
    Native,
    /// Compiled by rustc.
    Rust,
    /// Compiled by Go.
    Go,
    /// A Python function.
    Python,
    /// Code that a runtime compiled at run time.
    Jit,
    /// The kernel, its modules and BPF programs.
    Kernel,
    /// Not code: the lock that a thread waits for, shown as `[lock ID]`.
    Lock,
    /// Not code: a marker of the profiler, as `[truncated: REASON]`.
    Marker,
}

impl FrameCategory {
    /// The category by which a frame is drawn and its name is shortened.
    #[must_use]
    pub fn of(frame: &Frame<'_>) -> Self {
        let location = &frame.location;
        match (location.marker, location.frame_type) {
            (Some(Marker::Truncated(_)), _) => Self::Marker,
            (Some(Marker::Lock(_)), _) => Self::Lock,
            (Some(Marker::Words), FrameType::Native)
                if location.mapping == MappingIndex::default() && location.address == 0 =>
            {
                Self::Marker
            }
            (_, FrameType::Kernel) => Self::Kernel,
            (_, FrameType::Rust) => Self::Rust,
            (_, FrameType::Go) => Self::Go,
            (_, FrameType::CPython) => Self::Python,
            (_, FrameType::Native) if !location.is_generated => Self::Native,
            _ => Self::Jit,
        }
    }

    /// All categories, in the order of legends.
    pub const ALL: [Self; 8] =
        [Self::Native, Self::Rust, Self::Go, Self::Python, Self::Jit, Self::Kernel, Self::Lock, Self::Marker];

    /// The label in legends.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Rust => "Rust",
            Self::Go => "Go",
            Self::Python => "Python",
            Self::Jit => "JIT",
            Self::Kernel => "kernel",
            Self::Lock => "lock",
            Self::Marker => "truncated or missing",
        }
    }
}
