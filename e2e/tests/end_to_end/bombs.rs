//! Files that take far more memory or time to read than their size suggests.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use object::elf::{SHT_DYNSYM, SHT_RELA, SHT_STRTAB, SHT_SYMTAB};
use sidewinder_e2e_support::elf_writer::{ElfWriter, Section};
use sidewinder_e2e_support::load::Load;
use sidewinder_e2e_support::requirement;
use sidewinder_e2e_support::session::{Daemon, Settings};
use sidewinder_e2e_support::workload::MAPS_CODE;

const NOBODY: &str = "127.0.0.1:9";

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn xz(content: &[u8], folder: &Path) -> Result<Vec<u8>> {
    let plain = folder.join("plain");
    std::fs::write(&plain, content)?;
    let out = Command::new("xz").args(["-0", "-c"]).arg(&plain).output()?;
    std::fs::remove_file(plain)?;
    Ok(out.stdout)
}

const CIE: &[u8] =
    &[0x14, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0];

/// `.debug_frame` of one function, whose frame changes with each byte.
fn debug_frame(bytes: usize) -> Vec<u8> {
    let mut out = CIE.to_vec();
    let instructions = bytes - 20;
    out.extend(((instructions + 20) as u32).to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    out.extend(4096_u64.to_le_bytes());
    out.extend(0x2000_0000_u64.to_le_bytes());
    let step = [0x41, 0x86, 2, 0x41, 0xc6];
    out.extend(step.iter().cycle().take(instructions));
    out
}

fn bombs(folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut found = Vec::new();
    let mut add = |name: &'static str, elf: ElfWriter| -> Result<()> {
        let path = folder.join(name);
        elf.write(&path)?;
        found.push((name, path));
        Ok(())
    };
    let with = |sections: Vec<Section>| ElfWriter { sections, ..ElfWriter::default() };
    let zeros = vec![0_u8; (64 << 20) - 4096];
    add("mini", with(vec![Section::new(".gnu_debugdata", xz(&zeros, folder)?)]))?;
    let frame = debug_frame(60 << 20);
    let compressed = Section::compressed(".debug_frame", &zlib(&frame), frame.len() as u64);
    add("debug_frame", ElfWriter { segment_bytes: 1 << 30, ..with(vec![compressed]) })?;
    let frame = debug_frame(10 << 20);
    let compressed = Section::compressed(".debug_frame", &zlib(&frame), frame.len() as u64);
    add("debug_frame_10", ElfWriter { segment_bytes: 1 << 30, ..with(vec![compressed]) })?;
    let compressed = Section::compressed(".sframe", &zlib(&zeros), zeros.len() as u64);
    add("sframe", with(vec![compressed]))?;
    for (name, mib) in [("rets", 8), ("rets30", 30)] {
        add(name, ElfWriter { code: vec![0xc3; mib << 20], ..ElfWriter::default() })?;
    }
    let calls: Vec<u8> = (0..1_600_000_i32)
        .flat_map(|n| {
            let target = (i64::from(n) * 7919 % 8_000_000) as i32;
            let rel = target - (n * 5 + 5);
            let mut c = vec![0xe8];
            c.extend(rel.to_le_bytes());
            c
        })
        .collect();
    add("calls", ElfWriter { code: calls, ..ElfWriter::default() })?;
    // One entry, whose table is far larger.
    let mut hdr = vec![1, 0x1b, 3, 0x3b];
    hdr.extend((-4096_i32).to_le_bytes());
    hdr.extend(1_000_000_u32.to_le_bytes());
    add(
        "huge",
        ElfWriter {
            segment_bytes: 1 << 40,
            ..with(vec![
                Section::new(".eh_frame", vec![0; 4096]),
                Section { hole_bytes: 8_000_000, ..Section::new(".eh_frame_hdr", hdr) },
            ])
        },
    )?;
    add("huge-plain", ElfWriter { segment_bytes: 1 << 40, ..with(vec![]) })?;
    let symbols: Vec<u8> = (0..2_000_000_u64)
        .flat_map(|n| {
            let mut s = 1_u32.to_le_bytes().to_vec();
            s.extend([2, 0, 1, 0]);
            s.extend((4096 + n * 4).to_le_bytes());
            s.extend(4_u64.to_le_bytes());
            s
        })
        .collect();
    let names = Section { kind: SHT_STRTAB, ..Section::new(".strtab", b"\0function\0".to_vec()) };
    add(
        "symbols",
        ElfWriter {
            code: vec![0xcc; 8 << 20],
            ..with(vec![
                Section { kind: SHT_SYMTAB, link: 3, ..Section::new(".symtab", symbols.clone()) },
                names.clone(),
            ])
        },
    )?;
    add(
        "relocations",
        with(vec![
            Section { kind: SHT_DYNSYM, link: 3, ..Section::new(".dynsym", symbols[..2400].to_vec()) },
            names.clone(),
            Section { kind: SHT_RELA, link: 2, hole_bytes: 1 << 40, ..Section::new(".rela.dyn", Vec::new()) },
        ]),
    )?;
    add(
        "relocations2",
        ElfWriter {
            code: vec![0xc3; 1 << 20],
            ..with(vec![
                Section { kind: SHT_DYNSYM, link: 3, ..Section::new(".dynsym", symbols[..2400].to_vec()) },
                names.clone(),
                Section {
                    kind: SHT_RELA,
                    link: 2,
                    hole_bytes: 1 << 36,
                    ..Section::new(".rela.dyn", Vec::new())
                },
            ])
        },
    )?;
    add("segments", ElfWriter { more_segments: 60_000, ..with(vec![]) })?;
    let gib = vec![0_u8; 1 << 30];
    let z = zlib(&gib);
    add(
        "debug_info",
        with(vec![
            Section::compressed(".debug_info", &z, 1 << 30),
            Section::compressed(".debug_abbrev", &z, 1 << 30),
            Section::compressed(".debug_line", &z, 1 << 30),
            Section::compressed(".debug_str", &z, 1 << 30),
        ]),
    )?;
    let mut go = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    go.extend([1_u64 << 31, 1, 4096, 72, 72, 72, 72, 72].map(u64::to_le_bytes).concat());
    add(
        "gopclntab",
        ElfWriter {
            segment_bytes: 1 << 30,
            ..with(vec![Section { hole_bytes: 1 << 38, ..Section::new(".gopclntab", go) }])
        },
    )?;
    Ok(found)
}

#[test]
fn explore() -> Result<()> {
    if !requirement::ebpf("bombs")? {
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let only = std::env::var("BOMB").ok();
    let mappings: u32 = std::env::var("MAPPINGS").map_or(1, |m| m.parse().unwrap());
    for (name, path) in bombs(folder.path())? {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let target = Load::start(MAPS_CODE.command(&[mappings.to_string(), path.display().to_string()])?)?;
        let started = Instant::now();
        let more = std::env::var("MORE").map_or(Vec::new(), |m| vec![m]);
        let daemon = match Daemon::start(&Settings { more, ..Settings::of_process(target.pid()) }, NOBODY) {
            Ok(daemon) => daemon,
            Err(error) => {
                eprintln!("{name}: not started: {error:#}");
                continue;
            }
        };
        thread::sleep(Duration::from_secs(8));
        let peak = daemon.peak_bytes()?.unwrap_or(0) >> 20;
        let status = daemon.receiver_status();
        eprintln!(
            "{}",
            std::fs::read_to_string(format!("/proc/{}/status", daemon.running().pid()))?
                .lines()
                .filter(|l| l.contains("VmHWM") || l.contains("VmRSS"))
                .collect::<String>()
        );
        let cpu =
            std::fs::read_to_string(format!("/proc/{}/stat", daemon.running().pid())).unwrap_or_default();
        let ticks: Vec<&str> = cpu.split(' ').skip(13).take(2).collect();
        let events = status
            .as_ref()
            .ok()
            .map(|s| (s["events"].clone(), s["interrupts"].clone(), s["tables_incomplete"].clone()));
        let ended = daemon.stop();
        let log = match &ended {
            Ok(e) => e.log.clone(),
            Err(e) => format!("FAILED {e:#}"),
        };
        let interesting: Vec<&str> = log
            .lines()
            .filter(|l| {
                l.contains("WARN") || l.contains("ERROR") || l.contains("FAILED") || l.contains("memory")
            })
            .take(6)
            .collect();
        eprintln!(
            "== {name}: peak {peak} MiB, cpu {ticks:?}, {:.1?}, {events:?}\n{}",
            started.elapsed(),
            interesting.join("\n")
        );
    }
    Ok(())
}
