//! The registry of language runtimes: the one place that names each of them.

use sidewinder_bpf::WalkedRuntime;
use sidewinder_vm_runtime::{Runtime, RuntimeDescription, WalkedDescription};

use crate::{cpython, hotspot, unwalked, v8};

/// All runtimes, in the order in which they are shown.
pub const RUNTIMES: [&RuntimeDescription; 12] = [
    &cpython::DESCRIPTION,
    &v8::DESCRIPTION,
    &hotspot::DESCRIPTION,
    &unwalked::DOTNET,
    &unwalked::GO,
    &unwalked::RUBY,
    &unwalked::PHP,
    &unwalked::BEAM,
    &unwalked::LUAJIT,
    &unwalked::PYPY,
    &unwalked::PERL,
    &unwalked::OTHER,
];

/// The runtimes that generate code, the likeliest generator first: programs of one may be run inside another, and Python
/// generates code only to be visible to profilers.
pub const GENERATORS: [Runtime; 9] = [
    Runtime::Jvm,
    Runtime::Dotnet,
    Runtime::V8,
    Runtime::Php,
    Runtime::Beam,
    Runtime::PyPy,
    Runtime::Ruby,
    Runtime::LuaJit,
    Runtime::CPython,
];

/// What is said of a runtime; of `None`, what is said of those that are not known.
#[must_use]
pub fn describe(runtime: Option<Runtime>) -> &'static RuntimeDescription {
    RUNTIMES.into_iter().find(|row| row.runtime == runtime).unwrap_or(&unwalked::OTHER)
}

/// What is said of the frames of a runtime that walks find.
#[must_use]
pub const fn describe_walked(runtime: WalkedRuntime) -> &'static WalkedDescription {
    match runtime {
        WalkedRuntime::CPython => &cpython::WALKED,
        WalkedRuntime::HotSpot => &hotspot::WALKED,
        WalkedRuntime::V8 => &v8::WALKED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runtime_has_one_description() {
        for (number, row) in RUNTIMES.into_iter().enumerate() {
            let is_same = |other: &&RuntimeDescription| other.id == row.id || other.runtime == row.runtime;
            assert_eq!(RUNTIMES.iter().position(is_same), Some(number), "{}", row.id);
            assert_eq!(describe(row.runtime).id, row.id);
        }
        for runtime in WalkedRuntime::ALL {
            assert_eq!(Runtime::from(runtime).walked(), Some(runtime));
        }
    }
}
