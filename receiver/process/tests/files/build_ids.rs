//! What identifies a file: build IDs as other tools read them, and the hash of its ends.

use super::*;

/// The first identifier that `readelf -n` prints after a label.
fn readelf(file: &Path, label: &str) -> Option<String> {
    let output = Command::new("readelf").arg("-n").arg(file).output().expect("readelf is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_once(label)?.1.split_whitespace().next().map(str::to_owned)
}

fn ids_of(program: &Path) -> (BuildIds, String) {
    let tree = Tree::new();
    tree.add(PID, 100, &line_for(program, program.to_str().unwrap()));
    let root = tree.proc_root().0.join(PID.to_string()).join("root");
    fs::remove_file(&root).unwrap();
    symlink("/", root).unwrap();
    let mut files = FileTable::new(tree.proc_root(), FileTableLimits::default());
    let found = identify(&mut files, &tree.proc_root(), PID);
    let entry = files.get(found.id).unwrap();
    (entry.build_ids().clone(), entry.hash().unwrap().to_string())
}

#[test]
fn build_ids_equal_readelfs() {
    let directory = tempfile::tempdir().unwrap();
    let source = "int main(void) { return 0; }";
    for (name, argument) in [
        ("sha1", "-Wl,--build-id=sha1"),
        ("md5", "-Wl,--build-id=md5"),
        ("long", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"),
        ("none", "-Wl,--build-id=none"),
        ("static", "-static"),
    ] {
        let program = compile(directory.path(), name, source, &[argument]);
        let ids = ids_of(&program).0;
        assert_eq!(ids.gnu.map(|id| id.to_string()), readelf(&program, "Build ID:"), "{name}");
        assert_eq!(ids.go, None);
    }
}

#[test]
fn a_go_build_id_equals_the_linkers() {
    let go = ["go", "/usr/local/go/bin/go"]
        .into_iter()
        .find(|go| Command::new(go).arg("version").output().is_ok());
    let Some(go) = go else {
        eprintln!("skipped: no Go toolchain");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("main.go"), directory.path().join("program"));
    fs::write(&source, "package main\nfunc main() {}\n").unwrap();
    let built = Command::new(go).args(["build", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    let said = Command::new(go).args(["tool", "buildid"]).arg(&program).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert_eq!(ids_of(&program).0.go.as_deref(), Some(said.trim()));
}

#[test]
fn the_hash_of_the_ends_is_that_of_the_conventions() {
    let directory = tempfile::tempdir().unwrap();
    for size in [0_u64, 1, 4095, 4096, 4097, 8192, 100_000] {
        let file = directory.path().join(format!("f{size}"));
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        fs::write(&file, bytes).unwrap();
        let length: String = size.to_be_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect();
        let script =
            format!("(head -c 4096 \"$0\"; tail -c 4096 \"$0\"; printf '{length}') | sha256sum | cut -c1-32");
        let expected = Command::new("sh").args(["-c", &script]).arg(&file).output().unwrap();
        assert_eq!(ids_of(&file).1, String::from_utf8(expected.stdout).unwrap().trim(), "{size} bytes");
    }
}

#[test]
fn broken_elf_files_have_no_build_id() {
    let directory = tempfile::tempdir().unwrap();
    let whole = fs::read("/bin/true").unwrap();
    let file = directory.path().join("broken");
    for (at, value) in [(4, 1_u8), (5, 2), (0, 0), (54, 1), (32, 0xff), (39, 0xff)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(ids_of(&file).0, BuildIds::default(), "byte {at}");
        fs::remove_file(&file).unwrap();
    }
    for length in [0, 1, 63, 64, 65, 200, 700] {
        fs::write(&file, &whole[..length]).unwrap();
        ids_of(&file);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn the_vdso_is_one_file_for_all() {
    let mut registry = Registry::new(ProcRoot::default(), RegistryLimits::default());
    registry.scan(Pid(std::process::id())).unwrap();
    let process = registry.process(Pid(std::process::id())).unwrap();
    let mapping =
        process.mappings().find(|mapping| mapping.backing == sidewinder_process::Backing::Vdso).unwrap();
    let mut files = FileTable::new(ProcRoot::default(), FileTableLimits::default());
    let first = files.identify(process, mapping).unwrap();
    let second = files.identify(process, mapping).unwrap();
    assert_eq!((first.id, first.is_new, second.is_new), (second.id, true, false));
    let entry = files.get(first.id).unwrap();
    assert!(entry.build_ids().gnu.is_some());
    let mut magic = [0; 4];
    entry.opened().unwrap().read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"\x7fELF");
}
