//! What the README promises, and the attribute by which each end-to-end test names the promise that it shows.
//!
//! A test of this module reads the README and the tests: each statement of the README is in the list, and each promise has a test in
//! `make test`, unless it takes something that `make test` does not build.

pub use sidewinder_e2e_promise::promise;

#[cfg(test)]
mod tests;

/// Declares the promises with their words in the README, and the command that shows those that `make test` doesn't.
macro_rules! promises {
    ($($name:ident $(by_hand $target:literal)?: $words:literal,)*) => {
        /// A promise of the README; its [`words`](Self::words) are in there.
        #[allow(missing_docs, reason = "their words say what they mean")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Promise { $($name,)* }

        impl Promise {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Words of the README that state it, with one space between them.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// The target of the Makefile that shows it, if `make test` does not.
            #[must_use]
            pub const fn by_hand(self) -> Option<&'static str> {
                match self { $(Self::$name => promises!(@target $($target)?),)* }
            }
        }
    };
    (@target) => { None };
    (@target $target:literal) => { Some($target) };
}

promises! {
    KernelUnwinding: "unwinds stacks in the kernel",
    Delivery: "sends them to an OpenTelemetry Collector or a backend",
    CompleteOrTruncated: "Every stack is complete, or marked as truncated with the reason.",
    OneOutcome: "interrupt is counted under exactly one outcome",
    InterruptsWithoutProgram: "interrupts for which no program ran",
    HybridUnwinding: "Hybrid unwinding, per address range",
    UnwindTables: "from `.eh_frame`, `.debug_frame`, `.gopclntab`, `.sframe`, debug files",
    Small: "each distinct stack is copied out of the kernel once",
    Page: "The page: CPU of each thread over time, and a flame graph",
    Record: "$ sudo sidewinder record -p 1234 -d 10",
    RecordCommand: "$ sudo sidewinder record -o out.pb.gz -- ./server",
    Formats: "for `go tool pprof`",
    Top: "$ sudo sidewinder top",
    Wall: "$ sudo sidewinder record --wall",
    Check: "$ sidewinder check",
    NoRestart: "No program has to be rebuilt or restarted.",
    Privileges: "root or the capabilities `BPF`, `PERFMON` and `SYS_PTRACE`",
    Questions: "[docs/use.md](docs/use.md) answers ten",
    Packages: "one static program",
    Completions: "with completions and manual pages",
    LivePage: "live on http://localhost:7878/",
    Names: "functions, and writes ./profile.html",
    Image by_hand "image-test": "$ make image && skopeo copy",
    Charts: "$ helm install sidewinder charts/sidewinder",
    Injection: "\"sidewinder/inject\":\"true\"",
    PodCapabilities: "must admit the capabilities `BPF` and `PERFMON`",
    Status: "/sidewinder status` shows whether it works",
    Backends: "Collector versions work with Parca and Pyroscope",
    SpanRecording: "$ sidewinder record -p 1234 -d 6s --span",
    ThreadContext: "(OTEP 4719 and 4947; Go programs",
    TraceExamples: "[otlp/TRACES.md](otlp/TRACES.md) explains",
    Runs: "| Runs | beside a pod, on a node, by hand",
    OnePod: "(`make pods`)",
    Architectures by_hand "image-test": "`make image-test ARCHITECTURES=\"amd64 arm64\"`",
    SidecarCapabilities by_hand "image-test": "| Needs | BPF, PERFMON",
    TableRows by_hand "oracle": "| Stacks without frame pointers | tables, 2 bytes",
    WithoutUnwindInformation: "| Without unwind information | rows",
    DeepestStack by_hand "bench": "| Deepest native stack | 8,192 frames",
    MixedStacks: "| Interpreters, JIT |",
    OffCpu: "(`make conservation`)",
    Locks: "locks (`cargo test -p sidewinder-e2e locks::`)",
    PageFaults: "page faults",
    CustomLabels: "custom labels (`cargo test -p sidewinder-e2e trace::`)",
    Probes: "uprobes, uretprobes, USDT, tracepoints",
    OtlpProfiles: "| OTLP profiles | yes",
    CostOfASample by_hand "bench": "3 µs, unwound and symbolized",
    PodMemory: "**Per pod**",
    Node: "**Per node**",
    OlderKernels by_hand "vm-test": "stacks of more than 1,056 frames are truncated",
    CPython: "CPython 3.8 to 3.14",
    HotSpot: "HotSpot of OpenJDK 8 to 26",
    V8: "V8 of Node.js 18 to 26",
    WebAssembly: "inlined functions and WebAssembly",
    PerfMaps: "runtime writes a perf map or jitdump",
    GoMutexes: "Go's `sync.Mutex`",
    PodTests: "tested in pods without a cluster",
    Cluster by_hand "cluster-test": "on an API server without nodes",
    Configuration: "(config/REFERENCE.md)",
    Stability: "(VERSIONING.md)",
}
