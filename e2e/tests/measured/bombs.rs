//! Files and processes that would take far more memory or time than their size suggests. The service has a sidecar's memory, and
//! still profiles what comes after them.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use object::elf::{SHT_DYNSYM, SHT_RELA, SHT_STRTAB, SHT_SYMTAB};
use serde_json::Value;
use sidewinder_e2e_support::elf_writer::{CODE_OFFSET, ElfWriter, Section};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::{LADDER, MAPS_CODE};

/// No Collector is there: what is sent is of no interest here.
const NOBODY: &str = "127.0.0.1:9";

const RET: u8 = 0xc3;
const PUSH: u8 = 0x50;

/// What bounds the time for a file, however large it claims to be, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Zeros, compressed by `xz`.
fn xz_zeros(bytes: u64, folder: &Path) -> Result<Vec<u8>> {
    let zeros = folder.join("zeros");
    File::create(&zeros)?.set_len(bytes)?;
    let compressed = Command::new("xz").args(["-0", "--stdout"]).arg(&zeros).output()?;
    ensure!(compressed.status.success(), "xz: {}", String::from_utf8_lossy(&compressed.stderr));
    Ok(compressed.stdout)
}

/// A compressed section of `bytes` that begins with this and repeats it.
fn compressed(name: &'static str, head: &[u8], repeated: &[u8], bytes: usize) -> Result<Section> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(head)?;
    let block = repeated.repeat((1 << 20) / repeated.len());
    let mut left = bytes - head.len();
    while left > 0 {
        let written = left.min(block.len());
        encoder.write_all(&block[..written])?;
        left -= written;
    }
    Ok(Section::compressed(name, &encoder.finish()?, bytes as u64))
}

/// `.debug_frame` of one function, of which the frame changes with each byte.
fn debug_frame(bytes: usize) -> Result<Section> {
    // Version 1, without augmentation; the CFA is at %rsp + 8, and the return address below it.
    let cie = [1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let function = [CODE_OFFSET, 1 << 29].map(u64::to_le_bytes).concat();
    let word = |value: u32| value.to_le_bytes();
    let fde_bytes = bytes as u32 - 4 - 4 - cie.len() as u32 - 4;
    let head =
        [&word(4 + cie.len() as u32)[..], &word(u32::MAX), &cie, &word(fde_bytes), &word(0), &function]
            .concat();
    // One byte further, %rbp is saved; one byte further, it is restored.
    compressed(".debug_frame", &head, &[0x41, 0x86, 2, 0x41, 0xc6], bytes)
}

/// `.eh_frame_hdr` for the page before it, with this many entries, all of them zero.
fn eh_frame_hdr(entries: u32) -> Section {
    let pointer = -(CODE_OFFSET as i32) - 4;
    let head = [&[1, 0x1b, 3, 0x3b][..], &pointer.to_le_bytes(), &entries.to_le_bytes()].concat();
    Section { hole_bytes: u64::from(entries) * 8, ..Section::new(".eh_frame_hdr", head) }
}

/// Functions of four bytes each, all of the same name, which section 3 has.
fn symbols(count: u64) -> Vec<u8> {
    let symbol = |number: u64| {
        let head = [1, 0, 0, 0, 2, 0, 1, 0];
        let range = [CODE_OFFSET + 4 * number, 4].map(u64::to_le_bytes).concat();
        [&head[..], &range].concat()
    };
    (0..count).flat_map(symbol).collect()
}

/// Calls of other calls.
fn calls(count: i64) -> Vec<u8> {
    const CALL_BYTES: i64 = 5;
    let call = |number: i64| {
        let target = number * 7919 % count * CALL_BYTES;
        let distance = (target - (number + 1) * CALL_BYTES) as i32;
        [&[0xe8][..], &distance.to_le_bytes()].concat()
    };
    (0..count).flat_map(call).collect()
}

/// Go's table with this many functions, all of them zero.
fn gopclntab(functions: u64) -> Section {
    let parts = [functions, 1, CODE_OFFSET, 72, 72, 72, 72, 72].map(u64::to_le_bytes).concat();
    let head = [&[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8][..], &parts].concat();
    Section { hole_bytes: 1 << 38, ..Section::new(".gopclntab", head) }
}

/// Files, by what is too much in them.
const FILES: [&str; 13] = [
    "minidebug",
    "compressed",
    "rows",
    "functions",
    "calls",
    "blocks",
    "code",
    "described-code",
    "symbols",
    "relocations",
    "segments",
    "debug-info",
    "go-functions",
];

/// One of [`FILES`].
fn file(name: &str, folder: &Path) -> Result<ElfWriter> {
    let with = |sections: Vec<Section>| ElfWriter { sections, ..ElfWriter::default() };
    let of_code = |code: Vec<u8>| ElfWriter { code, ..ElfWriter::default() };
    let huge = |sections: Vec<Section>| ElfWriter { segment_bytes: 1 << 40, ..with(sections) };
    let names = || Section { kind: SHT_STRTAB, ..Section::new(".strtab", b"\0abort\0".to_vec()) };
    Ok(match name {
        "minidebug" => with(vec![Section::new(".gnu_debugdata", xz_zeros((64 << 20) - 1, folder)?)]),
        "compressed" => with(vec![compressed(".sframe", &[], &[0], 64 << 20)?]),
        "rows" => ElfWriter { segment_bytes: 1 << 30, ..with(vec![debug_frame(10 << 20)?]) },
        "functions" => of_code(vec![RET; 7 << 20]),
        "calls" => of_code(calls(1_400_000)),
        "blocks" => of_code([0x75, 0].repeat(3 << 20)),
        "code" => huge(Vec::new()),
        "described-code" => {
            let page = Section::new(".eh_frame", vec![0; CODE_OFFSET as usize]);
            huge(vec![page, eh_frame_hdr(1 << 31)])
        }
        "symbols" => {
            let symtab = Section { kind: SHT_SYMTAB, link: 3, ..Section::new(".symtab", symbols(2 << 20)) };
            ElfWriter { code: vec![PUSH; 7 << 20], ..with(vec![symtab, names()]) }
        }
        "relocations" => {
            let dynsym = Section { kind: SHT_DYNSYM, link: 3, ..Section::new(".dynsym", symbols(1000)) };
            let relocations = Section {
                kind: SHT_RELA,
                link: 2,
                hole_bytes: 1 << 40,
                ..Section::new(".rela.dyn", Vec::new())
            };
            ElfWriter { code: vec![PUSH; 1 << 20], ..with(vec![dynsym, names(), relocations]) }
        }
        "segments" => ElfWriter { segment_bytes: 1 << 32, more_segments: 60_000, ..with(Vec::new()) },
        "debug-info" => {
            let debug = [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_aranges"];
            with(debug.map(|name| compressed(name, &[], &[0], 1 << 30)).into_iter().collect::<Result<_>>()?)
        }
        "go-functions" => ElfWriter { segment_bytes: 1 << 30, ..with(vec![gopclntab(1 << 31)]) },
        _ => bail!("no such file: {name}"),
    })
}

/// Waits until a target's processes have mapped what they map: each mapping is an event, too.
fn wait_until_mapped(pid: u32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(format!("/proc/{pid}/comm"))?.trim_end() != "maps-code-ready" {
        ensure!(Instant::now() < deadline, "the target does not get ready");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The stacks that were walked completely in one second from now.
fn complete_in_a_second(daemon: &Daemon) -> Result<u64> {
    let before = daemon.stacks()?.complete;
    thread::sleep(Duration::from_secs(1));
    Ok(daemon.stacks()?.complete - before)
}

/// Profiles a target and, once its status says that this has taken effect, a program after it.
fn profile_beside(name: &str, target: Command, has_effect: impl Fn(&Value) -> bool) -> Result<()> {
    profile_beside_within(name, target, has_effect, PATIENCE)
}

fn profile_beside_within(
    name: &str,
    target: Command,
    has_effect: impl Fn(&Value) -> bool,
    patience: Duration,
) -> Result<()> {
    /// Of 997 that are expected where it has a CPU for itself.
    const STACKS_OF_NEIGHBOR: u64 = 100;

    let target = Load::start(target)?;
    wait_until_mapped(target.pid())?;
    let executables = [&MAPS_CODE, &LADDER].map(|program| format!("*/{}", program.name)).to_vec();
    let settings = Settings { executables, ..Settings::at(997) };
    let daemon = Daemon::start(&settings, NOBODY)?;
    daemon.wait_for_events(1000)?;
    let deadline = Instant::now() + patience;
    while !has_effect(&daemon.receiver_status()?) {
        ensure!(
            Instant::now() < deadline,
            "{name}: {:#}\n{}",
            daemon.receiver_status()?,
            daemon.running().log()
        );
        thread::sleep(Duration::from_millis(200));
    }
    // Its own stacks may be complete, too.
    drop(target);
    let _neighbor = Load::start(LADDER.command(&["3600", "30"])?)?;
    let deadline = Instant::now() + PATIENCE;
    while complete_in_a_second(&daemon)? < STACKS_OF_NEIGHBOR {
        ensure!(Instant::now() < deadline, "{name}: no stacks of its neighbor\n{}", daemon.running().log());
    }
    if let Some(bytes) = daemon.peak_bytes()? {
        eprintln!("{name}: at most {} MiB", bytes >> 20);
    }
    daemon.stop()?;
    Ok(())
}

/// One that is decompressed, and one of which far more is made than it has bytes.
const OF_A_COMMIT: [&str; 2] = ["minidebug", "rows"];

#[promise(PodMemory)]
fn two_files_take_no_more_memory_than_a_sidecar_has() -> Result<()> {
    files_one_after_the_other(|name| OF_A_COMMIT.contains(&name))
}

#[promise(PodMemory, test_all)]
fn files_take_no_more_memory_than_a_sidecar_has() -> Result<()> {
    files_one_after_the_other(|name| !OF_A_COMMIT.contains(&name))
}

fn files_one_after_the_other(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    const NAME: &str = "files that are bombs";
    if !requirement::ebpf(NAME)? || !requirement::program(NAME, "xz")? {
        return Ok(());
    }
    // A file may be larger than a file system in memory allows.
    let folder = tempfile::tempdir_in("/var/tmp")?;
    for name in FILES.into_iter().filter(|name| is_wanted(name)) {
        let path = folder.path().join(name);
        file(name, folder.path())?.write(&path)?;
        let target = MAPS_CODE.command(&["1".to_owned(), path.display().to_string()])?;
        profile_beside(name, target, |_| true)?;
    }
    Ok(())
}

#[promise(PodMemory, test_all)]
fn mappings_take_no_more_memory_than_a_sidecar_has() -> Result<()> {
    const NAME: &str = "processes with many mappings";
    const PROCESSES: usize = 8;
    if !requirement::ebpf(NAME)? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let target = processes_with_mappings(PROCESSES, folder.path())?;
    let left_out = |status: &Value| status["counters"]["mappings_left_out"].as_u64() > Some(100_000);
    profile_beside(NAME, target, left_out)
}

/// So many processes with 60,000 executable mappings each.
fn processes_with_mappings(count: usize, folder: &Path) -> Result<Command> {
    let path = folder.join("code");
    ElfWriter::default().write(&path)?;
    let paths = std::iter::repeat_n(path.display().to_string(), count);
    MAPS_CODE.command(&std::iter::once("60000".to_owned()).chain(paths).collect::<Vec<_>>())
}

#[promise(PodMemory, test_all)]
fn all_together_leave_a_sidecar_alive_for_ten_minutes() -> Result<()> {
    const NAME: &str = "all bombs together";
    if std::env::var_os("SIDEWINDER_WHOLE_BOMBS").is_none() {
        return requirement::elsewhere(NAME, "make bombs");
    }
    if !requirement::ebpf(NAME)? || !requirement::program(NAME, "xz")? {
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let mut arguments = vec!["1".to_owned()];
    for name in FILES {
        let path = folder.path().join(name);
        file(name, folder.path())?.write(&path)?;
        arguments.push(path.display().to_string());
    }
    let _mappings = Load::start(processes_with_mappings(8, folder.path())?)?;
    let started = Instant::now();
    let lasted = |_: &Value| started.elapsed() > Duration::from_secs(600);
    profile_beside_within(NAME, MAPS_CODE.command(&arguments)?, lasted, Duration::from_secs(660))
}
