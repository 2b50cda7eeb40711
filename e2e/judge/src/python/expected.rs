//! What a program wrote down of itself: `--expected FILE` of `e2e/workloads/python/program.py`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use sidewinder_e2e_support::python::PythonProgram;

/// A function by what a profile says of it: its name and its file.
type FunctionKey = (String, String);

/// One frame of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ChainFrame {
    /// With the classes and functions around it; only code objects of 3.11 and later have that.
    qualname: Option<String>,
    name: String,
    /// As the code object has it.
    pub file: String,
    /// The one of the call; where the chain ends, those of the work.
    pub lines: BTreeSet<u32>,
    /// Whether its caller called a function in C, which called it.
    pub is_called_from_c: bool,
}

impl ChainFrame {
    /// The name that a profile has to show. This is the one place that says which.
    #[must_use]
    pub fn shown_name(&self) -> &str {
        self.qualname.as_deref().unwrap_or(&self.name)
    }
}

/// A stack that the program has while it computes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Chain {
    /// The function that it begins with, or another name for it.
    pub name: String,
    /// The name of its thread.
    pub thread: String,
    /// Outermost first.
    pub frames: Vec<ChainFrame>,
}

#[derive(Deserialize)]
struct Written {
    version: (u32, u32, u32),
    chain_files: BTreeSet<String>,
    chains: Vec<Chain>,
    functions: Vec<WrittenFunction>,
}

#[derive(Deserialize)]
struct WrittenFunction {
    qualname: Option<String>,
    name: String,
    file: String,
    lines: BTreeSet<u32>,
}

/// What stacks a program has, and which functions there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Of CPython.
    pub version: (u32, u32, u32),
    /// The source files whose functions are in chains only.
    pub chain_files: BTreeSet<String>,
    /// Its chains.
    pub chains: Vec<Chain>,
    /// Lines of all functions. Several may have one name, as lambdas have.
    functions: HashMap<FunctionKey, BTreeSet<u32>>,
}

impl Expected {
    /// Has a program write down what its chains are with these options, and reads that.
    ///
    /// # Errors
    /// When the program fails, or writes something else.
    pub fn of_program(program: &PythonProgram, options: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("expected.json");
        program.write_expected(&file, options)?;
        Self::read(&file)
    }

    /// Reads what a program wrote.
    ///
    /// # Errors
    /// When the file isn't there or is something else.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::from_json(&text).with_context(|| path.display().to_string())
    }

    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let written: Written = serde_json::from_str(text)?;
        let mut functions = HashMap::<FunctionKey, BTreeSet<u32>>::new();
        for function in written.functions {
            let name = function.qualname.unwrap_or(function.name);
            functions.entry((name, function.file)).or_default().extend(function.lines);
        }
        let Written { version, chain_files, chains, .. } = written;
        Ok(Self { version, chain_files, chains, functions })
    }

    /// The lines of the functions that have this name in this file; `None` where there is no such function.
    #[must_use]
    pub fn lines_of(&self, name: &str, file: &str) -> Option<&BTreeSet<u32>> {
        self.functions.get(&(name.to_owned(), file.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `main` (10 to 19) calls `sort` (20 to 29) at 11, which has C call `key` (30 to 39) at 21, which computes at 32 and 33.
    /// `library` is in another file.
    pub(crate) const WRITTEN: &str = r#"{
        "version": [3, 13, 0],
        "chain_files": ["/app.py"],
        "chains": [{ "name": "sort", "thread": "MainThread", "frames": [
            { "qualname": "main", "name": "main", "file": "/app.py", "lines": [11], "is_called_from_c": false },
            { "qualname": "A.sort", "name": "sort", "file": "/app.py", "lines": [21], "is_called_from_c": false },
            { "qualname": "key", "name": "key", "file": "/app.py", "lines": [32, 33], "is_called_from_c": true }
        ] }],
        "functions": [
            { "qualname": "main", "name": "main", "file": "/app.py", "lines": [10, 11, 19] },
            { "qualname": "A.sort", "name": "sort", "file": "/app.py", "lines": [20, 21] },
            { "qualname": "key", "name": "key", "file": "/app.py", "lines": [30, 32, 33] },
            { "qualname": "other", "name": "other", "file": "/app.py", "lines": [40] },
            { "qualname": "<lambda>", "name": "<lambda>", "file": "/library.py", "lines": [1] },
            { "qualname": "<lambda>", "name": "<lambda>", "file": "/library.py", "lines": [5] }
        ]
    }"#;

    #[test]
    fn functions_of_one_name_have_the_lines_of_all_of_them() -> Result<()> {
        let expected = Expected::from_json(WRITTEN)?;
        assert_eq!(expected.lines_of("<lambda>", "/library.py"), Some(&BTreeSet::from([1, 5])));
        assert_eq!(expected.lines_of("sort", "/app.py"), None, "it has a qualified name");
        assert_eq!(expected.chains[0].frames[1].shown_name(), "A.sort");
        Ok(())
    }
}
