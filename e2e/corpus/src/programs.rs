//! The programs, as data.

use std::path::PathBuf;

use sidewinder_e2e_judge::Chain;
use sidewinder_e2e_support::collector::{self, Version};
use sidewinder_e2e_support::workload::{
    self, BRIEF, COROUTINES, DIV, FRAMES, LADDER, LADDER_FP, LADDER_GO, LADDER_RUST, LOADER, PLUGIN, Program,
    QUEENS, REC, REQUESTS, SIGNALS, SPAWNER, THREADS, THROWS, WORDS_FP_STATIC,
};
use sidewinder_e2e_support::{paths, requirement};

use super::Registry;

/// A program of the corpus.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name in tables.
    pub name: &'static str,
    /// What it stands for.
    pub group: &'static str,
    /// A line for `sh`. `$SECONDS` is how long it shall run; it may go on until it is killed. `$COMPILED`, `$SOURCES`
    /// and `$SCRATCH` are folders: of our own compiled programs, of their sources, and an empty one, in which it runs.
    /// `$TEXT` is a long text; `$PYPI`, `$MAVEN` and `$NPM` what is fetched from there; `$TOOLS` has the programs that
    /// `e2e/setup.sh` builds; `$COLLECTOR` is a Collector, which is built where it is asked for.
    pub command: &'static str,
    /// Our own programs that have to be compiled before.
    pub needs: &'static [Program],
    /// The programs that have to be installed, or built by `e2e/setup.sh --corpus`.
    pub tools: &'static [&'static str],
    /// How the functions that it reports, if it does, follow each other.
    pub chain: Option<fn(Vec<String>) -> Chain>,
    /// Whether it takes seconds to start, and then makes a file `ready` where it runs.
    pub says_ready: bool,
    /// Whether its files have the symbols by which stacks are judged. Otherwise only `default_memory` runs it.
    pub is_judged: bool,
    /// Whether it belongs to the part that every test run sees.
    pub is_in_part: bool,
    /// Where it is fetched from, once.
    pub registry: Option<Registry>,
    /// Of which frames are judged.
    pub language: Option<Language>,
}

/// A language whose frames virtual machines have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// CPython's.
    Python,
    /// HotSpot's.
    Java,
    /// V8's.
    JavaScript,
}

impl Subject {
    const fn own(
        name: &'static str,
        group: &'static str,
        command: &'static str,
        needs: &'static [Program],
    ) -> Self {
        Self { needs, chain: Some(Chain::Contiguous), ..Self::system(name, group, command, &[]) }
    }

    const fn system(
        name: &'static str,
        group: &'static str,
        command: &'static str,
        tools: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            group,
            command,
            needs: &[],
            tools,
            chain: None,
            says_ready: false,
            is_judged: true,
            is_in_part: false,
            registry: None,
            language: None,
        }
    }

    const fn pypi(name: &'static str, command: &'static str) -> Self {
        Self::fetched(name, "PyPI", command, Registry::Pypi).in_language(Language::Python)
    }

    const fn maven(name: &'static str, command: &'static str) -> Self {
        Self::fetched(name, "Maven", command, Registry::Maven).in_language(Language::Java)
    }

    const fn npm(name: &'static str, command: &'static str) -> Self {
        Self::fetched(name, "npm", command, Registry::Npm).in_language(Language::JavaScript)
    }

    const fn fetched(
        name: &'static str,
        group: &'static str,
        command: &'static str,
        registry: Registry,
    ) -> Self {
        Self { registry: Some(registry), ..Self::system(name, group, command, registry.tools()) }
    }

    const fn in_language(self, language: Language) -> Self {
        Self { language: Some(language), ..self }
    }

    /// A server and its client, which says when the server has answered.
    const fn server(
        name: &'static str,
        group: &'static str,
        command: &'static str,
        tools: &'static [&'static str],
    ) -> Self {
        Self { says_ready: true, ..Self::system(name, group, command, tools) }
    }

    const fn without_symbols(self) -> Self {
        Self { is_judged: false, ..self }
    }

    const fn with_gaps(self) -> Self {
        Self { chain: Some(Chain::InOrder), ..self }
    }

    const fn in_part(self) -> Self {
        Self { is_in_part: true, ..self }
    }
}

/// The corpus.
pub const PROGRAMS: &[Subject] = &[
    Subject::own("ladder", "C++", "$COMPILED/ladder $SECONDS 30", &[LADDER]),
    Subject::own("ladder-fp", "C++, frame pointers", "$COMPILED/ladder-fp $SECONDS 500", &[LADDER_FP]),
    Subject::own("ladder-rust", "Rust", "$COMPILED/ladder-rust $SECONDS 30", &[LADDER_RUST]).in_part(),
    Subject::own("ladder-go", "Go", "$COMPILED/ladder-go $SECONDS 30", &[LADDER_GO]).in_part(),
    Subject {
        tools: &["ocamlopt"],
        ..Subject::own("queens", "OCaml", "$COMPILED/queens $SECONDS", &[QUEENS])
    },
    Subject::own("div", "512 functions", "$COMPILED/div $SECONDS 500", &[DIV]),
    Subject::own("rec", "5,000 deep", "$COMPILED/rec $SECONDS 5000", &[REC]).in_part(),
    Subject::own("frames", "40 kB frames", "$COMPILED/frames $SECONDS 150", &[FRAMES]).in_part(),
    Subject::own("threads", "threads", "$COMPILED/threads $SECONDS 8", &[THREADS]),
    Subject::own("signals", "signals", "$COMPILED/signals $SECONDS", &[SIGNALS]).with_gaps().in_part(),
    Subject::own("coroutines", "makecontext", "$COMPILED/coroutines $SECONDS", &[COROUTINES]),
    Subject::own("throws", "C++ exceptions", "$COMPILED/throws $SECONDS 30", &[THROWS]).in_part(),
    Subject::own("loader", "dlopen", "$COMPILED/loader $SECONDS $COMPILED/plugin.so", &[LOADER, PLUGIN])
        .with_gaps(),
    Subject::own("static", "static C++", "$COMPILED/words-fp-static $SECONDS", &[WORDS_FP_STATIC]),
    Subject::own("spawner", "fork and exec", "$COMPILED/spawner $COMPILED/brief 100000", &[SPAWNER, BRIEF]),
    Subject::system("forks", "fork", "while :; do (:); done", &[]),
    Subject::system("sha256", "crypto assembly", "openssl speed -seconds $SECONDS -evp sha256", &["openssl"])
        .in_part(),
    Subject::system(
        "aes-gcm",
        "crypto assembly",
        "openssl speed -seconds $SECONDS -evp aes-256-gcm",
        &["openssl"],
    ),
    Subject::system("rsa", "crypto assembly", "openssl speed -seconds $SECONDS rsa2048", &["openssl"]),
    Subject::system("ecdsa", "crypto assembly", "openssl speed -seconds $SECONDS ecdsap256", &["openssl"]),
    Subject::system(
        "chacha20",
        "crypto assembly",
        "openssl speed -seconds $SECONDS -evp chacha20-poly1305",
        &["openssl"],
    ),
    Subject::system(
        "python",
        "interpreter",
        "/usr/bin/python3 $SOURCES/recursive.py $SECONDS",
        &["/usr/bin/python3"],
    )
    .in_language(Language::Python),
    Subject::pypi("django", "$PYPI/bin/python -B $SOURCES/python/pypi.py django $SECONDS"),
    Subject::pypi("flask", "$PYPI/bin/python -B $SOURCES/python/pypi.py flask $SECONDS"),
    Subject::pypi("pandas", "$PYPI/bin/python -B $SOURCES/python/pypi.py pandas $SECONDS"),
    Subject::pypi("numpy", "$PYPI/bin/python -B $SOURCES/python/pypi.py numpy $SECONDS"),
    Subject::pypi("sklearn", "$PYPI/bin/python -B $SOURCES/python/pypi.py sklearn $SECONDS"),
    Subject::pypi("black", "$PYPI/bin/python -B $SOURCES/python/pypi.py black $SECONDS"),
    Subject::pypi("mypy", "$PYPI/bin/python -B $SOURCES/python/pypi.py mypy $SECONDS"),
    Subject::pypi("pytest", "$PYPI/bin/python -B $SOURCES/python/pypi.py pytest $SECONDS"),
    Subject::pypi("sphinx", "$PYPI/bin/python -B $SOURCES/python/pypi.py sphinx $SECONDS"),
    Subject::pypi("sympy", "$PYPI/bin/python -B $SOURCES/python/pypi.py sympy $SECONDS"),
    Subject::pypi("sqlglot", "$PYPI/bin/python -B $SOURCES/python/pypi.py sqlglot $SECONDS"),
    Subject::pypi("asyncio", "$PYPI/bin/python -B $SOURCES/python/pypi.py asyncio $SECONDS"),
    Subject::maven("javac", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs javac $SECONDS"),
    Subject::maven("scala", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs scala $SECONDS"),
    Subject::maven("h2", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs h2 $SECONDS"),
    Subject::maven("lucene", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs lucene $SECONDS"),
    Subject::maven("netty", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs netty $SECONDS"),
    Subject::maven("spring", "java -cp $MAVEN/classes:$MAVEN/lib/* corpus.Programs spring $SECONDS"),
    Subject::maven(
        "groovy",
        "java -cp $MAVEN/classes:$MAVEN/lib/* groovy.ui.GroovyMain $SOURCES/java/rounds.groovy $SECONDS",
    ),
    Subject::maven(
        "clojure",
        "java -cp $MAVEN/classes:$MAVEN/lib/* clojure.main $SOURCES/java/rounds.clj $SECONDS",
    ),
    Subject::maven(
        "jruby",
        "java -cp $MAVEN/classes:$MAVEN/lib/* org.jruby.Main $SOURCES/java/rounds.rb $SECONDS",
    ),
    Subject::npm(
        "typescript",
        "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js typescript $SECONDS",
    ),
    Subject::npm("webpack", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js webpack $SECONDS"),
    Subject::npm("esbuild", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js esbuild $SECONDS"),
    Subject::npm("babel", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js babel $SECONDS"),
    Subject::npm("terser", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js terser $SECONDS"),
    Subject::npm("next", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js next $SECONDS"),
    Subject::npm("express", "env NODE_PATH=$NPM/node_modules node $SOURCES/node/npm.js express $SECONDS"),
    Subject::system("perl", "interpreter", "perl $SOURCES/words.pl $SECONDS", &["perl"]),
    Subject::system("lua", "interpreter", "lua5.4 $SOURCES/primes.lua $SECONDS", &["lua5.4"]),
    Subject::system("node", "JIT", "node $SOURCES/tree.js $SECONDS", &["node"])
        .in_language(Language::JavaScript),
    Subject::system("node-jitless", "interpreter", "node --jitless $SOURCES/tree.js $SECONDS", &["node"])
        .in_language(Language::JavaScript),
    Subject::system("java", "JIT", "java $SOURCES/Tree.java $SECONDS", &["java"]).in_language(Language::Java),
    Subject {
        says_ready: true,
        ..Subject::system("classes", "20,000 classes", "java $SOURCES/Classes.java $SECONDS", &["java"])
            .in_language(Language::Java)
    },
    Subject::system("java-int", "interpreter", "java -Xint $SOURCES/Tree.java $SECONDS", &["java"])
        .in_language(Language::Java),
    Subject::system("sqlite", "database", "sqlite3 :memory: <$SOURCES/primes.sql", &["sqlite3"]),
    Subject::system(
        "redis",
        "database",
        "{ redis-server --port 0 --unixsocket redis.sock --save '' & \
         sleep 0.3; redis-benchmark -s redis.sock -q -n 100000000 -r 100000; }",
        &["redis-server", "redis-benchmark"],
    ),
    Subject::server("postgres", "database", "sh $SOURCES/pgbench.sh $SECONDS", &["pgbench"]),
    // A process of the server for each transaction.
    Subject::server(
        "postgres-connect",
        "database",
        "sh $SOURCES/pgbench.sh $SECONDS --connect",
        &["pgbench"],
    ),
    // It ends with its standard input.
    Subject {
        needs: &[REQUESTS],
        ..Subject::server(
            "kube-apiserver",
            "server",
            "{ sleep $SECONDS | $TOOLS/cluster & $COMPILED/requests kubernetes $SECONDS; }",
            &["$TOOLS/cluster", "go"],
        )
        .without_symbols()
    },
    Subject {
        needs: &[REQUESTS],
        ..Subject::server(
            "collector",
            "server",
            "{ $COLLECTOR --config $SOURCES/collector.yaml --feature-gates=service.profilesSupport & \
             $COMPILED/requests collector $SECONDS; }",
            &["go"],
        )
        .without_symbols()
    },
    // It goes on until it is killed, as somebody could debug it.
    Subject::system(
        "chromium",
        "browser",
        "chromium-headless-shell --no-sandbox --remote-debugging-port=0 --user-data-dir=$SCRATCH/profile \
         file://$SOURCES/layout.html",
        &["chromium-headless-shell"],
    )
    .without_symbols(),
    Subject::system(
        "gcc",
        "compiler",
        "while :; do g++ -O2 -S -o /dev/null $SOURCES/words.cc; done",
        &["g++"],
    ),
    Subject::system(
        "clang",
        "compiler",
        "while :; do clang++ -O2 -S -o /dev/null $SOURCES/words.cc; done",
        &["clang++"],
    ),
    Subject::system(
        "rustc",
        "compiler",
        "while :; do rustc --edition 2024 -O -o $SCRATCH/out $SOURCES/ladder.rs; done",
        &["rustc"],
    ),
    Subject::system(
        "go-build",
        "compiler",
        "while :; do GOCACHE=$SCRATCH/go go build -a -o $SCRATCH/out $SOURCES/ladder.go; done",
        &["go"],
    ),
    // One of Go's programs of 25 MB at a time, for each package.
    Subject::system(
        "go-vet",
        "compiler",
        "while :; do GOCACHE=$SCRATCH/go go vet -p 1 std; rm -rf $SCRATCH/go; done",
        &["go"],
    ),
    Subject::system("xz", "compressor", "while :; do xz -6 -T2 -c $TEXT; done", &["xz"]),
    Subject::system("zstd", "compressor", "while :; do zstd -19 -T2 -c $TEXT; done", &["zstd"]),
    Subject::system("bzip2", "compressor", "while :; do bzip2 -c $TEXT; done", &["bzip2"]),
    Subject::system("gzip", "compressor", "while :; do gzip -9 -c $TEXT; done", &["gzip"]).in_part(),
];

impl Subject {
    /// Compiles what has to be compiled.
    ///
    /// # Errors
    /// When a compiler refuses.
    pub fn prepare(&self) -> anyhow::Result<()> {
        self.needs.iter().try_for_each(|program| program.compiled().map(drop))?;
        if let Some(registry) = self.registry {
            registry.fetched()?;
        }
        workload::text().map(drop)
    }

    /// The Collector that its command runs, built where that has not been done.
    ///
    /// # Errors
    /// When it can't be built.
    pub(super) fn collector(&self) -> anyhow::Result<Option<PathBuf>> {
        self.command.contains("$COLLECTOR").then(|| collector::build(Version::of_run())).transpose()
    }

    /// Whether frames of Java or JavaScript are judged.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        matches!(self.language, Some(Language::Java | Language::JavaScript))
    }

    /// The first program that it needs and that is not installed.
    #[must_use]
    pub fn missing_tool(&self) -> Option<&'static str> {
        let is_there = |tool: &str| match tool.strip_prefix("$TOOLS/") {
            Some(built) => paths::tools().is_ok_and(|folder| folder.join(built).is_file()),
            None => requirement::is_installed(tool),
        };
        self.tools.iter().copied().find(|tool| !is_there(tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_commands_name_what_they_need() {
        for (at, subject) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS.iter().skip(at + 1).all(|other| other.name != subject.name), "{}", subject.name);
            for program in subject.needs {
                assert!(subject.command.contains(&format!("$COMPILED/{}", program.name)), "{}", subject.name);
            }
            if let Some(registry) = subject.registry {
                assert!(subject.command.contains(&format!("${}", registry.variable())), "{}", subject.name);
            }
            for tool in
                subject.tools.iter().filter(|_| subject.needs.is_empty() && subject.registry.is_none())
            {
                assert!(subject.command.contains(tool), "{}", subject.name);
            }
        }
    }

    #[test]
    fn the_part_is_of_six_to_eight_programs() {
        assert!((6..=8).contains(&PROGRAMS.iter().filter(|subject| subject.is_in_part).count()));
    }
}
