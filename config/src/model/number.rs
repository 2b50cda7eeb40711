//! Integer and fraction types with a range.

use std::fmt;
use std::num::NonZeroU32;

/// A number outside the range of its key.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{value} is not in {min} to {max}")]
pub struct OutOfRange<T: fmt::Display + fmt::Debug> {
    /// The given number.
    pub value: T,
    /// The least accepted value.
    pub min: T,
    /// The greatest accepted value.
    pub max: T,
}

macro_rules! ranged {
    ($(#[$meta:meta])* $name:ident($inner:ty): $min:literal..=$max:literal, default $default:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
        pub struct $name($inner);

        impl $name {
            /// The least value.
            pub const MIN: $inner = $min;
            /// The greatest value.
            pub const MAX: $inner = $max;

            /// Checks `value` against the range.
            ///
            /// # Errors
            /// [`OutOfRange`] if it lies outside.
            pub fn new(value: $inner) -> Result<Self, OutOfRange<$inner>> {
                if (Self::MIN..=Self::MAX).contains(&value) {
                    Ok(Self(value))
                } else {
                    Err(OutOfRange { value, min: Self::MIN, max: Self::MAX })
                }
            }

            /// The number itself.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

ranged! {
    /// Interrupts per second and CPU.
    SamplesPerSecond(u32): 1..=10_000, default 20
}
ranged! {
    /// The memory limit in MiB for maps, tables, names and queues together.
    MemoryLimitMib(u32): 16..=65_536, default 48
}
ranged! {
    /// The memory limit in MiB for the samples that are kept for the page.
    UiMemoryMib(u32): 1..=1_024, default 16
}
ranged! {
    /// The size limit in MiB for saved unwind tables.
    SavedTablesMib(u32): 1..=65_536, default 64
}
ranged! {
    /// The number of frames after which a stack is truncated, and marked as such.
    MaxFrames(u32): 1..=8_192, default 8_192
}
ranged! {
    /// Concurrent requests of an exporter.
    NumConsumers(u32): 1..=1_024, default 2
}
ranged! {
    /// A fraction, 0 to 1.
    Fraction(f64): 0.0..=1.0, default 0.0
}
ranged! {
    /// A percentage, 1 to 100.
    Percent(u32): 1..=100, default 100
}
ranged! {
    /// The factor between successive intervals.
    Multiplier(f64): 0.0..=1_000.0, default 1.5
}
ranged! {
    /// What is logged of the kernel's verifier when programs are loaded: 0 nothing, 1 why it refuses a program, 2 also the
    /// statistics of those it accepts.
    VerifierLogLevel(u32): 0..=2, default 0
}

/// A process ID in Sidewinder's PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SelectedPid(NonZeroU32);

impl SelectedPid {
    /// The kernel's greatest process ID (`PID_MAX_LIMIT`).
    pub const MAX: u32 = 1 << 22;

    /// Checks that `id` is a possible process ID.
    ///
    /// # Errors
    /// [`OutOfRange`] for 0 and for ids above [`SelectedPid::MAX`].
    pub fn new(id: u32) -> Result<Self, OutOfRange<u32>> {
        match NonZeroU32::new(id) {
            Some(id) if id.get() <= Self::MAX => Ok(Self(id)),
            _ => Err(OutOfRange { value: id, min: 1, max: Self::MAX }),
        }
    }

    /// The process ID.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_range_are_inclusive() {
        assert_eq!(SamplesPerSecond::new(10_000).unwrap().get(), 10_000);
        let refused = SamplesPerSecond::new(10_001).unwrap_err();
        assert_eq!(refused.to_string(), "10001 is not in 1 to 10000");
        assert!(SamplesPerSecond::new(0).is_err());
    }

    #[test]
    fn not_a_number_is_in_no_range() {
        assert!(Fraction::new(f64::NAN).is_err());
        assert!(Multiplier::new(f64::INFINITY).is_err());
    }

    #[test]
    fn a_pid_is_one_that_a_kernel_hands_out() {
        assert!(SelectedPid::new(0).is_err());
        assert_eq!(SelectedPid::new(SelectedPid::MAX).unwrap().get(), 4_194_304);
        assert!(SelectedPid::new(SelectedPid::MAX + 1).is_err());
    }
}
