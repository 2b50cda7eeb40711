//! The virtual machines of running Java programs, as they describe themselves.
#![expect(clippy::unwrap_used, clippy::panic, reason = "what goes wrong in a test fails it")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sidewinder_process::{Pid, ProcRoot, ProcessDir, ProcessMemory, read_executable_mappings};
use sidewinder_vm::hotspot::{JvmLibrary, VirtualMachine};

/// How long a virtual machine may take to start.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Java(Child);

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The JDKs of this machine.
fn homes() -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let homes = folders.map(|entry| entry.path()).filter(|path| !path.is_symlink());
    homes.filter(|path| path.join("bin/java").is_file()).collect()
}

fn library_of(home: &Path) -> JvmLibrary {
    let file = File::open(home.join("lib/server/libjvm.so")).unwrap();
    JvmLibrary::read(&file).unwrap().expect("libjvm.so contains HotSpot")
}

/// The virtual machine of a process, once it has started.
fn machine_of(pid: u32, library: &JvmLibrary) -> (VirtualMachine, ProcessMemory) {
    let root = ProcRoot::default();
    let started = Instant::now();
    loop {
        let open = || ProcessDir::open(&root, Pid(pid)).unwrap();
        let memory = ProcessMemory::new(open());
        let mut bias = None;
        read_executable_mappings(open().file("maps").unwrap(), |mapping| {
            let is_library = mapping.backing.file().is_some_and(|file| file.path().ends_with(b"/libjvm.so"));
            bias = bias.or_else(|| library.bias_of(&mapping).filter(|_| is_library));
        })
        .unwrap();
        let located = bias.map(|bias| library.locate(bias, &memory));
        match located {
            Some(Ok(machine)) => return (machine, memory),
            Some(Err(error)) if started.elapsed() > TIMEOUT => panic!("{error}"),
            _ => sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_virtual_machine_says_where_its_code_is() {
    let homes = homes();
    if homes.is_empty() {
        eprintln!("SKIPPED: no JDK in /usr/lib/jvm");
    }
    for home in homes {
        let library = library_of(&home);
        // Waits for input.
        let child = Command::new(home.join("bin/jshell")).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let java = Java(child.unwrap());
        let (machine, _) = machine_of(java.0.id(), &library);
        println!("{} {machine:?}", home.to_string_lossy());
        let is_in_heap =
            |address: u64| machine.heaps.iter().any(|heap| address.wrapping_sub(heap.start.0) < heap.bytes);
        assert!(machine.version.0 >= 17);
        assert!(is_in_heap(machine.interpreter.0.0) && is_in_heap(machine.call_stub_return.0));
    }
}
