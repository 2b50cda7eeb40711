use std::fs;
use std::path::{Path, PathBuf};

use super::*;

const SCRIPT: &str = "function f() {\n}\n";
const MAP: &str = r#"{"version":3,"sources":["../src/x.ts"],"mappings":"AAKA"}"#;
const MAP_BYTES_MAX: usize = 1 << 16;

/// A folder with a script, whose maps we look for as if we ran it.
struct Program {
    folder: tempfile::TempDir,
    store: Arc<SourceMapStore>,
    maps: ProcessSourceMaps,
}

impl Program {
    fn new() -> Self {
        let store = Arc::new(SourceMapStore::new(MAP_SHARE * MAP_BYTES_MAX, Arc::default()));
        let maps = ProcessSourceMaps::new(Pid(std::process::id()), Arc::clone(&store)).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), store, maps }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The map of a script that has been loaded.
    fn find(&self, script: &Path, text: &str) -> Option<Arc<SourceMap>> {
        let path = script.to_str().unwrap();
        let content = ScriptFile::read(text.as_bytes(), path, SCRIPT_BYTES_MAX).unwrap().content.unwrap();
        let key = ScriptKey { path: path.into(), content };
        for _ in 0..2 {
            match self.maps.find(&key) {
                Ok(found) => return found,
                Err(NotLoaded) => self.maps.load_missed(),
            }
        }
        panic!("it was loaded");
    }

    fn nonzero_counts(&self) -> Vec<(&'static str, u64)> {
        self.store.counts().by_outcome().filter(|(_, count)| *count > 0).collect()
    }
}

#[test]
fn a_map_is_found_beside_its_script() {
    let program = Program::new();
    let text = format!("{SCRIPT}//# sourceMappingURL=x.js.map\n");
    let script = program.write("x.js", &text);
    program.write("x.js.map", MAP);
    let map = program.find(&script, &text).unwrap();
    let found = map.find(0, 3).unwrap();
    let source = program.folder.path().parent().unwrap().join("src/x.ts");
    assert_eq!((Path::new(&**found.source), found.line), (&*source, 6));
    assert!(Arc::ptr_eq(&map, &program.find(&script, &text).unwrap()));
    assert_eq!(program.nonzero_counts(), [("read", 1)]);
}

#[test]
fn a_map_is_found_in_its_script() {
    use base64::Engine as _;
    let program = Program::new();
    let data = BASE64.encode(MAP);
    for (name, data) in [("padded.js", &*data), ("unpadded.js", data.trim_end_matches('='))] {
        let text = format!("{SCRIPT}//# sourceMappingURL=data:application/json;base64,{data}");
        let script = program.write(name, &text);
        assert_eq!(program.find(&script, &text).unwrap().find(0, 0).unwrap().line, 6);
    }
    assert_eq!(program.nonzero_counts(), [("read", 2)]);
}

#[test]
fn each_script_without_a_map_counts_once() {
    let program = Program::new();
    let named = |map: &str| format!("{SCRIPT}//# sourceMappingURL={map}\n");
    program.write("big.map", &format!(r#"{{"version":3,"mappings":"{}"}}"#, ";".repeat(2 * MAP_BYTES_MAX)));
    program.write("bad.map", "{");
    let scripts = [
        ("none.js", SCRIPT.to_owned()),
        ("missing.js", named("missing.map")),
        ("big.js", named("big.map")),
        ("bad.js", named("bad.map")),
        ("bad-data.js", named("data:application/json;base64,!")),
        ("host.js", named("https://localhost/x.map")),
        ("folder.js", named(".")),
    ];
    let scripts = scripts.map(|(name, text)| (program.write(name, &text), text));
    for (script, text) in scripts.iter().chain(&scripts) {
        assert!(program.find(script, text).is_none(), "{script:?}");
    }
    // The script was written again after the process had loaded it.
    assert!(program.find(&program.path("none.js"), "let x;\n").is_none());
    assert!(program.find(&program.path("gone.js"), SCRIPT).is_none());
    assert!(program.find(Path::new("node:fs"), SCRIPT).is_none());
    let expected = [
        ("none", 1),
        ("missing", 2),
        ("changed", 1),
        ("unreadable", 1),
        ("too_big", 1),
        ("malformed", 2),
        ("unsupported", 1),
    ];
    assert_eq!(program.nonzero_counts(), expected);
}

#[test]
fn a_map_that_was_forgotten_is_read_again_a_few_times() {
    let program = Program::new();
    let text = format!("{SCRIPT}//# sourceMappingURL=x.js.map\n");
    let script = program.write("x.js", &text);
    program.write("x.js.map", MAP);
    let stamp = FileVersion::from(&fs::metadata(&script).unwrap());
    // Two of them take almost all room.
    let large = format!(r#"{{"version":3,"mappings":"{}"}}"#, ";".repeat(MAP_BYTES_MAX * 7 / 8));
    let mut reads = 0;
    while program.find(&script, &text).is_some() {
        reads += 1;
        for number in 0..3 {
            let map = SourceMap::read(large.as_bytes(), "/", MAP_BYTES_MAX).unwrap();
            let path = format!("{reads}.{number}").into();
            program.store.maps.add(MapKey { script: stamp, map: None, path }, map);
        }
        assert!(reads <= 2 * RELOADS_MAX);
    }
    assert_eq!(reads, RELOADS_MAX + 1);
    assert_eq!(program.nonzero_counts(), [("read", 1), ("too_big", 1)]);
}
