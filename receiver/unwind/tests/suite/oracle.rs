//! Rows of a fixed selection of the machine's files are compared with gimli's. `make oracle` compares all of them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use sidewinder_unwind::{Cfa, Entry, Rule, unwind_table};
use sidewinder_unwind_oracle::compare as compare_rows;

fn compare(shown_as: &str, data: &[u8]) {
    let (table, comparison) = compare_rows(data).unwrap();
    eprintln!("{shown_as}: {comparison:?}");
    assert_eq!(table.summary().malformed_total(), 0, "{shown_as}: {:?}", table.summary());
    assert!(comparison.compared > 0);
    assert_eq!(comparison.unexplained, 0, "{shown_as}: {:#?}", comparison.examples);
    // In a small file, a few differences are a large share.
    let differences: u64 = comparison.differences.values().sum();
    assert!(differences <= 60 + comparison.compared / 10_000, "{shown_as}: {comparison:?}");
}

fn compare_file(candidates: &[&str]) {
    let found = candidates.iter().find_map(|path| Some((path, std::fs::read(path).ok()?)));
    match found {
        Some((path, data)) => compare(path, &data),
        None => eprintln!("SKIPPED: none of {candidates:?} is on this machine"),
    }
}

macro_rules! oracle {
    ($($name:ident: $($path:literal),+;)+) => {
        $(#[test]
        fn $name() {
            compare_file(&[$($path),+]);
        })+
    };
}

oracle! {
    rows_of_the_c_library_equal_gimlis: "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6";
    rows_of_the_dynamic_linker_equal_gimlis: "/lib64/ld-linux-x86-64.so.2";
    rows_of_the_cpp_library_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6";
    rows_of_libcrypto_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib64/libcrypto.so.3";
    rows_of_libgcrypt_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libgcrypt.so.20", "/usr/lib64/libgcrypt.so.20";
    rows_of_openssl_equal_gimlis: "/usr/bin/openssl";
    rows_of_python_equal_gimlis: "/usr/bin/python3", "/usr/bin/python3.11";
    rows_of_sqlite_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0", "/usr/lib64/libsqlite3.so.0";
    rows_of_liblzma_equal_gimlis: "/usr/lib/x86_64-linux-gnu/liblzma.so.5", "/usr/lib64/liblzma.so.5";
    rows_of_bash_equal_gimlis: "/usr/bin/bash";
    rows_of_libllvm_equal_gimlis: "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1";
    rows_of_a_rust_program_equal_gimlis: "/proc/self/exe";
}

/// The vDSO is an ELF file that exists only in memory: this process's own is read.
#[test]
fn rows_of_the_vdso_equal_gimlis() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let Some(vdso) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return eprintln!("SKIPPED: this kernel gives its processes no vDSO");
    };
    let (start, end) = vdso.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut image = vec![0; (end - start) as usize];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();
    compare("vDSO", &image);
}

#[test]
fn a_file_without_section_headers_keeps_its_rows() {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    let mut stripped = whole.clone();
    stripped[0x28..0x30].fill(0); // e_shoff
    stripped[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    let table = |data: &[u8]| unwind_table(&object::File::parse(data).unwrap()).unwrap();
    let (whole, stripped) = (table(&whole), table(&stripped));
    assert!(whole.len() > 1000);
    // Without sections there are no symbols and no linkage tables to make rows from.
    let is_silent = |entry: &Entry| *entry == Entry::NO_INFORMATION;
    // An entry of a linkage table that was taken for a function has rows up to its jump.
    let is_linkage = |entry: &Entry| matches!(entry, Entry::Rule(Rule { cfa: Cfa::Plt { .. }, .. }));
    let is_leaf = |entry: &Entry| *entry == Entry::Rule(Rule::LEAF);
    for row in whole.rows().chain(stripped.rows()) {
        let [one, other] = [&whole, &stripped].map(|table| table.lookup(row.start));
        let is_entry = is_linkage(&one) && is_leaf(&other);
        assert!(one == other || is_silent(&one) || is_silent(&other) || is_entry, "{row}");
    }
    assert_eq!(stripped.summary().malformed_total(), 0);
}
