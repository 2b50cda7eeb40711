//! The list, the README and the attributes of the tests agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::Promise;
use crate::paths;

/// The programs of tests.
const PROGRAMS: [&str; 2] = ["end_to_end", "measured"];

/// Statements of the README that promise nothing of Sidewinder itself, by words of theirs.
const NO_PROMISES: [&str; 6] = [
    "$ cargo install",
    "$ make test",
    "need Debian or Ubuntu",
    "(August to October 2026)",
    "HorizontalPodAutoscaler",
    "Apache License 2.0",
];

/// Tests that `.ci/end-to-end` runs once more when they have failed: lines of program, test, and why.
const SECOND_TRIES: &str = ".ci/second-tries";
const SECOND_TRIES_MAX: usize = 5;

/// A test, as the sources have it.
struct Test {
    program: &'static str,
    /// As the test harness calls it.
    name: String,
    /// What its attribute says in parentheses; `None` for a plain `#[test]`.
    attribute: Option<String>,
}

impl Test {
    fn promise(&self) -> Option<&str> {
        self.attribute.as_deref()?.split(',').next()
    }

    fn is_of_a_commit(&self) -> bool {
        self.attribute.as_deref().is_some_and(|attribute| !attribute.contains(','))
    }
}

/// All end-to-end tests.
fn tests() -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for program in PROGRAMS {
        let root = paths::e2e().join("tests").join(program);
        for file in sources(&root)? {
            let module = file.strip_prefix(&root)?.with_extension("");
            let module: Vec<_> = module.iter().map(|part| part.to_string_lossy()).collect();
            for (name, attribute) in tests_in(&fs::read_to_string(&file)?) {
                tests.push(Test { program, name: format!("{}::{name}", module.join("::")), attribute });
            }
        }
    }
    ensure!(tests.len() > 300, "only {} tests", tests.len());
    Ok(tests)
}

/// The files of Rust below a folder.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Names of tests in their file, each with its attribute.
fn tests_in(source: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut pending: Option<Option<String>> = None;
    for line in source.lines() {
        let code = line.trim_start();
        if let Some(attribute) = code.strip_prefix("#[promise(") {
            pending = Some(Some(attribute.trim_end_matches(")]").to_owned()));
        } else if code.starts_with("#[test]") {
            pending = Some(None);
        } else if let Some(function) = code.strip_prefix("fn ")
            && let Some(attribute) = pending.take()
        {
            let name = function.split('(').next().unwrap_or_default();
            // Helpers have their own tests in a module `tests`.
            let module = if line == code { "" } else { "tests::" };
            found.push((format!("{module}{name}"), attribute));
        }
    }
    found
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(paths::repository().join(path)).with_context(|| path.to_owned())
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the README states: its paragraphs, its bullets, its commands with what is said of them, and the rows of its table up to what
/// they say of Sidewinder. Headings and pictures state nothing; nor does a row that says no.
fn statements(readme: &str) -> Vec<String> {
    let mut statements = Vec::new();
    for block in readme.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let starts_one: fn(&str) -> bool = match block.get(..2).unwrap_or(block) {
            "``" => |line| line.starts_with("$ "),
            "- " => |line| line.starts_with("- "),
            "| " => |line| line.starts_with("| "),
            "# " | "##" | "![" => continue,
            _ => |_| false,
        };
        let mut of_block: Vec<String> = vec![String::new()];
        for line in block.lines().filter(|line| !line.starts_with("```") && !line.starts_with("|---")) {
            if starts_one(line) {
                of_block.push(String::new());
            }
            if let Some(statement) = of_block.last_mut() {
                statement.push_str(line);
                statement.push('\n');
            }
        }
        statements.extend(of_block.iter().map(|statement| words(&of_sidewinder(statement))));
    }
    let says_something = |statement: &String| {
        let is_head = statement.starts_with("| | Sidewinder");
        !statement.is_empty() && !is_head && !statement.ends_with("| no")
    };
    statements.into_iter().filter(says_something).collect()
}

/// A row's subject and its first column; anything else as it is.
fn of_sidewinder(statement: &str) -> String {
    if !statement.starts_with('|') {
        return statement.to_owned();
    }
    statement.split('|').take(3).collect::<Vec<_>>().join("|").trim_end().to_owned()
}

#[test]
fn each_promise_is_in_the_readme() -> Result<()> {
    let readme = words(&read("README.md")?);
    let missing: Vec<_> = Promise::ALL.iter().filter(|promise| !readme.contains(promise.words())).collect();
    assert!(missing.is_empty(), "not in the README: {missing:?}");
    Ok(())
}

#[test]
fn each_statement_of_the_readme_is_in_the_list() -> Result<()> {
    let statements = statements(&read("README.md")?);
    assert!(statements.len() > 40, "{statements:#?}");
    let is_known = |statement: &&String| {
        Promise::ALL.iter().any(|promise| statement.contains(promise.words()))
            || NO_PROMISES.iter().any(|words| statement.contains(words))
    };
    let unknown: Vec<_> = statements.iter().filter(|statement| !is_known(statement)).collect();
    assert!(unknown.is_empty(), "neither a promise nor in NO_PROMISES: {unknown:#?}");
    for words in NO_PROMISES {
        assert!(statements.iter().any(|statement| statement.contains(words)), "not in the README: {words}");
    }
    Ok(())
}

#[test]
fn each_test_names_a_promise() -> Result<()> {
    let tests = tests()?;
    let nameless: Vec<_> =
        tests.iter().filter(|test| test.promise().is_none()).map(|test| &test.name).collect();
    assert!(nameless.is_empty(), "`#[promise(...)]` instead of `#[test]`: {nameless:#?}");
    Ok(())
}

#[test]
fn each_promise_is_shown_by_make_test_or_by_hand() -> Result<()> {
    let tests = tests()?;
    let shown: BTreeSet<_> =
        tests.iter().filter(|test| test.is_of_a_commit()).filter_map(Test::promise).collect();
    let makefile = read("Makefile")?;
    for promise in Promise::ALL {
        match promise.by_hand() {
            Some(target) => assert!(makefile.contains(&format!("\n{target}:")), "{promise:?}: no {target}"),
            None => {
                assert!(shown.contains(&*format!("{promise:?}")), "{promise:?} has no test in `make test`");
            }
        }
    }
    Ok(())
}

#[test]
fn few_tests_have_a_second_try_and_each_has_its_reason() -> Result<()> {
    let tests = tests()?;
    let list = read(SECOND_TRIES)?;
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() <= SECOND_TRIES_MAX, "{lines:#?}");
    for line in lines {
        let mut fields = line.splitn(3, ' ');
        let (program, name) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let exists = tests.iter().any(|test| test.program == program && test.name == name);
        assert!(exists, "no such test: {line}");
        assert!(fields.next().is_some_and(|reason| !reason.is_empty()), "no reason: {line}");
    }
    Ok(())
}
