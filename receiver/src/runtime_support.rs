//! What Sidewinder reads of each language runtime, and what users have to do for the rest.
//!
//! This table is the only one: `sidewinder check` shows it, `sidewinder record` takes its advice from it, and
//! `docs/runtimes.md` contains it, which a test compares.

use sidewinder_vm::Runtime;

/// What is read of a runtime.
#[derive(Debug)]
pub(crate) struct RuntimeSupport {
    /// `None`: a runtime that is not known, and generates code.
    pub(crate) runtime: Option<Runtime>,
    /// A stable ID, for programs.
    pub(crate) id: &'static str,
    /// Its name.
    pub(crate) label: &'static str,
    /// Its name, with the versions that are supported and the programs that contain it.
    pub(crate) name: &'static str,
    /// How the frames of its functions are found.
    pub(crate) frames: &'static str,
    /// How the names of its functions are found.
    pub(crate) names: &'static str,
    /// What makes whole stacks of it, as an instruction. `None`: nothing has to be done, or can be.
    pub(crate) frames_advice: Option<&'static str>,
    /// What gives names to the code that it generates, as an instruction. `PID` stands for the process. `None`: it generates
    /// no code, or nothing can give it names.
    pub(crate) advice: Option<&'static str>,
    /// The programs that all functions are read of, if others with the same runtime have only what it publishes.
    pub(crate) parts: Option<RuntimeParts>,
}

/// The programs with a runtime, by what is read of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeParts {
    /// Those whose functions are all read, without any switch.
    pub(crate) complete: &'static str,
    /// The others.
    pub(crate) others: &'static str,
}

impl RuntimeSupport {
    /// The row of a runtime.
    pub(crate) fn of(runtime: Option<Runtime>) -> &'static Self {
        ALL.iter().find(|row| row.runtime == runtime).unwrap_or(&OTHER)
    }

    /// Whether all of its functions are visible without any switch.
    pub(crate) fn is_complete(&self) -> bool {
        self.advice.is_none() && self.frames_advice.is_none() && !self.is_interpreter_only()
    }

    /// Whether functions that it interprets are not visible.
    pub(crate) fn is_interpreter_only(&self) -> bool {
        self.frames == INTERPRETER_ONLY
    }

    /// What to do about unnamed code that the runtime of a process has generated: for a runtime that does not generate code,
    /// as for a library that is not known.
    pub(crate) fn advice_for(runtime: Option<Runtime>, pid: u32) -> String {
        for_process(Self::of(runtime).advice.unwrap_or(OTHER_ADVICE), pid)
    }
}

/// An instruction with the PID of the process that it is for.
pub(crate) fn for_process(advice: &str, pid: u32) -> String {
    advice.replace("PID", &pid.to_string())
}

/// How names are found of code that a runtime generates.
const PUBLISHED: &str = "from a perf map or jitdump, if the runtime writes one";
/// The frames or names of a runtime whose own functions are not visible.
const INTERPRETER_ONLY: &str = "those of the interpreter";
const BY_FRAME_POINTER: &str = "generated code, by its frame pointers";
const OTHER_ADVICE: &str =
    "have its runtime write /tmp/perf-PID.map or a jitdump: look in its manual for perf(1)";

const OTHER: RuntimeSupport = RuntimeSupport {
    runtime: None,
    id: "other",
    label: "generated code",
    name: "LLVM's JIT compilers and others",
    frames: BY_FRAME_POINTER,
    names: "from a perf map, a jitdump, or the GDB JIT interface",
    frames_advice: None,
    advice: Some(OTHER_ADVICE),
    parts: None,
};

/// All runtimes, in the order in which they are shown.
pub(crate) const ALL: [RuntimeSupport; 12] = [
    RuntimeSupport {
        runtime: Some(Runtime::CPython),
        id: "cpython",
        label: "CPython",
        name: "CPython 3.8 to 3.14, 3.13t, 3.14t",
        frames: "each function, in order with the native frames",
        names: "read from the process's memory: qualified name (before 3.11, the plain name), file, line",
        frames_advice: None,
        advice: None,
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::V8),
        id: "v8",
        label: "V8",
        name: "V8: Node.js, Deno, Electron",
        frames: "Node.js 18 to 26: each compiled, inlined or interpreted function, in order with the native frames. Others: generated code, by its frame pointers",
        names: "Node.js: read from the process's memory: name, file and line. Others: from a perf map or jitdump, if the runtime writes one",
        frames_advice: None,
        advice: Some("run it with --perf-basic-prof (Node.js: NODE_OPTIONS=--perf-basic-prof)"),
        parts: Some(RuntimeParts {
            complete: "Node.js 18 to 26",
            others: "V8 of Deno, Electron and other programs",
        }),
    },
    RuntimeSupport {
        runtime: Some(Runtime::Jvm),
        id: "jvm",
        label: "Java",
        name: "Java: HotSpot of OpenJDK 8 to 26",
        frames: "each compiled, inlined or interpreted method, in order with the native frames",
        names: "read from the process's memory: class, method, types of parameters, file and line",
        frames_advice: None,
        advice: None,
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Dotnet),
        id: "dotnet",
        label: ".NET",
        name: ".NET",
        frames: BY_FRAME_POINTER,
        names: PUBLISHED,
        frames_advice: None,
        advice: Some("run it with DOTNET_PerfMapEnabled=1 and DOTNET_EnableWriteXorExecute=0"),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Go),
        id: "go",
        label: "Go",
        name: "Go, Rust, C, C++",
        frames: "native",
        names: "symbols and debug information; Go's own tables, also if stripped",
        frames_advice: None,
        advice: None,
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Ruby),
        id: "ruby",
        label: "Ruby",
        name: "Ruby",
        frames: INTERPRETER_ONLY,
        names: "those of the interpreter; of YJIT's code, from a perf map",
        frames_advice: None,
        advice: Some("run it with --yjit-perf (Ruby 3.3 and later)"),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Php),
        id: "php",
        label: "PHP",
        name: "PHP",
        frames: INTERPRETER_ONLY,
        names: "those of the interpreter; of the JIT compiler's code, from a perf map",
        frames_advice: None,
        advice: Some("run it with -d opcache.jit_debug=0x10"),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Beam),
        id: "beam",
        label: "Erlang's virtual machine",
        name: "Erlang, Elixir",
        frames: BY_FRAME_POINTER,
        names: PUBLISHED,
        frames_advice: None,
        advice: Some("run it with +JPperf true (ERL_FLAGS=\"+JPperf true\")"),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::LuaJit),
        id: "luajit",
        label: "LuaJIT",
        name: "LuaJIT",
        frames: INTERPRETER_ONLY,
        names: "those of the interpreter; of traces, from a perf map",
        frames_advice: None,
        advice: Some("build LuaJIT with XCFLAGS=-DLUAJIT_USE_PERFTOOLS"),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::PyPy),
        id: "pypy",
        label: "PyPy",
        name: "PyPy",
        frames: INTERPRETER_ONLY,
        names: INTERPRETER_ONLY,
        frames_advice: None,
        advice: Some(
            "nothing names the code that PyPy generates: run the program with CPython to see its functions",
        ),
        parts: None,
    },
    RuntimeSupport {
        runtime: Some(Runtime::Perl),
        id: "perl",
        label: "Perl",
        name: "Perl",
        frames: INTERPRETER_ONLY,
        names: INTERPRETER_ONLY,
        frames_advice: None,
        advice: None,
        parts: None,
    },
    OTHER,
];

/// What to do if the memory of a process can't be read, which has the names of its functions.
pub(crate) const MEMORY_ADVICE: &str =
    "run Sidewinder as root or with CAP_SYS_PTRACE, which its container needs too";
/// What to do if a process had ended before the names of its functions were read.
pub(crate) const ENDED_ADVICE: &str =
    "names are read while the process runs: have it run for longer than a moment";
/// What to do if samples are from before the files of a process were read, which say how to find its functions.
pub(crate) const EARLY_ADVICE: &str =
    "its functions were not known yet, which takes some seconds for a new program: record for longer";
/// What to do if a process publishes names, but not those of all its code.
pub(crate) const INCOMPLETE_ADVICE: &str = "its perf map or jitdump does not contain this code: have it written again, or from the start of the process";

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../docs/runtimes.md");

    fn line(row: &RuntimeSupport) -> String {
        let advice = row.advice.unwrap_or("-");
        format!("| {} | {} | {} | {advice} |", row.name, row.frames, row.names)
    }

    #[test]
    fn the_document_contains_this_table_and_no_other_rows() {
        let lines: Vec<String> = ALL.iter().map(line).collect();
        let table = format!(
            "| Runtime | Frames | Names | What names the code that it generates |\n|---|---|---|---|\n{}\n",
            lines.join("\n")
        );
        assert!(DOCUMENT.contains(&table), "docs/runtimes.md must contain:\n{table}");
    }

    #[test]
    fn the_document_contains_the_other_advice() {
        for advice in [MEMORY_ADVICE, ENDED_ADVICE, EARLY_ADVICE, INCOMPLETE_ADVICE] {
            assert!(DOCUMENT.contains(advice), "docs/runtimes.md must contain: {advice}");
        }
    }

    #[test]
    fn each_runtime_has_one_row_and_advice_names_the_process() {
        for (number, row) in ALL.iter().enumerate() {
            let same = |other: &RuntimeSupport| other.id == row.id || other.runtime == row.runtime;
            assert_eq!(ALL.iter().position(same), Some(number), "{}", row.id);
            assert_eq!(RuntimeSupport::of(row.runtime).id, row.id);
        }
        let advice = RuntimeSupport::advice_for(Some(Runtime::LuaJit), 12);
        assert!(advice.contains("LUAJIT_USE_PERFTOOLS"), "{advice}");
        // A library in a program whose language doesn't generate code.
        let advice = RuntimeSupport::advice_for(Some(Runtime::Perl), 12);
        assert!(advice.contains("/tmp/perf-12.map"), "{advice}");
    }
}
