//! The language runtimes that are known by name.

use sidewinder_bpf::WalkedRuntime;

/// A runtime that interprets programs, or compiles them while they run, or has compiled them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Runtime {
    /// CPython of any version.
    CPython,
    /// PyPy.
    PyPy,
    /// V8, the JavaScript engine of Node.js, Deno and Electron.
    V8,
    /// A Java virtual machine.
    Jvm,
    /// The common language runtime of .NET, or Mono.
    Dotnet,
    /// The reference implementation of Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Perl.
    Perl,
    /// LuaJIT.
    LuaJit,
    /// The virtual machine of Erlang and Elixir.
    Beam,
    /// Go's runtime.
    Go,
}

impl Runtime {
    /// As what walks find its frames, if they do.
    #[must_use]
    pub fn walked(self) -> Option<WalkedRuntime> {
        WalkedRuntime::ALL.into_iter().find(|walked| Self::from(*walked) == self)
    }
}

impl From<WalkedRuntime> for Runtime {
    fn from(walked: WalkedRuntime) -> Self {
        match walked {
            WalkedRuntime::CPython => Self::CPython,
            WalkedRuntime::HotSpot => Self::Jvm,
            WalkedRuntime::V8 => Self::V8,
        }
    }
}
