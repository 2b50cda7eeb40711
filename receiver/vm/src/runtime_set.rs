//! Sets of runtimes whose frames walks find.

use sidewinder_bpf::WalkedRuntime;
use sidewinder_vm_runtime::{PthreadLayout, Runtime};

use crate::registry::describe_walked;

/// Which runtimes to look for in files, and whose frames stacks have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RuntimeSet([bool; WalkedRuntime::ALL.len()]);

impl RuntimeSet {
    /// All.
    pub const ALL: Self = Self([true; WalkedRuntime::ALL.len()]);
    /// None.
    pub const NONE: Self = Self([false; WalkedRuntime::ALL.len()]);

    /// Those whose frames can be walked on this architecture.
    pub const WALKED: Self = {
        let mut set = Self::NONE;
        let mut number = 0;
        while number < WalkedRuntime::ALL.len() {
            let runtime = WalkedRuntime::ALL[number];
            set.0[runtime as usize] = describe_walked(runtime).is_walked_here;
            number += 1;
        }
        set
    };

    /// The set of one runtime.
    #[must_use]
    pub const fn only(runtime: WalkedRuntime) -> Self {
        let mut set = Self::NONE;
        set.0[runtime as usize] = true;
        set
    }

    /// The set without a runtime.
    #[must_use]
    pub const fn without(mut self, runtime: WalkedRuntime) -> Self {
        self.0[runtime as usize] = false;
        self
    }

    /// All but those with these keys in the configuration.
    #[must_use]
    pub fn without_keys(keys: impl Iterator<Item = &'static str>) -> Self {
        let with_key =
            |key| WalkedRuntime::ALL.into_iter().find(|runtime| describe_walked(*runtime).key == key);
        keys.filter_map(with_key).fold(Self::ALL, Self::without)
    }

    /// Those that are in another set, too.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|number| self.0[number] && other.0[number]))
    }

    /// Whether it contains a runtime.
    #[must_use]
    pub const fn contains(self, runtime: WalkedRuntime) -> bool {
        self.0[runtime as usize]
    }

    /// Whether it contains the one that walks know as a runtime.
    #[must_use]
    pub fn has(self, runtime: Runtime) -> bool {
        runtime.walked().is_some_and(|walked| self.contains(walked))
    }

    /// Whether one of them needs the layout of the C library's threads, and that has to be read on this architecture.
    #[must_use]
    pub fn reads_pthread(self) -> bool {
        let needs_it = |runtime| self.contains(runtime) && describe_walked(runtime).needs_pthread;
        PthreadLayout::IS_READ && WalkedRuntime::ALL.into_iter().any(needs_it)
    }

    /// Whether it contains none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }
}
