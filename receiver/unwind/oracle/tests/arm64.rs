//! Rows of files of arm64 out of Debian's packages are compared with gimli's. `make oracle ARCH=arm64` compares those of more
//! packages, all files of each.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use object::Object as _;
use sidewinder_e2e_debian::arm64;
use sidewinder_e2e_support::requirement;
use sidewinder_unwind::{RowSource, code_ranges};
use sidewinder_unwind_oracle::stripped::{self, BlindOutcome};
use sidewinder_unwind_oracle::{Difference, compare};

/// Compares a file of a package. At most this percentage of its code may have no rule: assembly without unwind information,
/// of which only functions that a simple analysis understands have rules. Rules from code alone, in a copy without unwind
/// information, are those of the unwind information, but for some instructions where both name a place of the same value: a
/// register, or the word that it was saved to.
fn compare_file(package: &str, path: &str, max_percent_without: u64) {
    let files = match arm64::files(package) {
        Ok(files) => files,
        Err(why) => return requirement::skip(path, &format!("no {package} for arm64: {why:#}")).unwrap(),
    };
    let data = fs::read(files.join(path)).unwrap();
    let file = object::File::parse(&*data).unwrap();
    assert_eq!(file.architecture(), object::Architecture::Aarch64);
    let (table, comparison) = compare(&data).unwrap();
    eprintln!("{path}: {comparison:?}");
    let summary = table.summary();
    assert_eq!(summary.malformed_total(), 0, "{summary:?}");
    assert!(summary.functions[&RowSource::EhFrame] > 100, "{summary:?}");
    assert!(comparison.compared > 10_000, "{comparison:?}");
    assert_eq!(comparison.unexplained, 0, "{:#?}", comparison.examples);
    // libmvec's are the only others, which are not compared here.
    assert!(comparison.differences.keys().all(|why| *why == Difference::StackBegins), "{comparison:?}");
    assert!(comparison.differences.values().sum::<u64>() <= 12, "{comparison:?}");

    let code: u64 = code_ranges(&file).unwrap().iter().map(|range| range.end.0 - range.start.0).sum();
    let without: u64 = summary.unresolved_bytes.values().sum();
    assert!(without * 100 <= code * max_percent_without, "{without} of {code} bytes have no rule");

    let blind = stripped::compare(&data, &table, &[]).unwrap();
    eprintln!("{path} by its code: {blind}");
    assert!(blind.percent(BlindOutcome::Equal) > 30.0, "{blind}");
    assert!(blind.wrong_percent() < 0.01, "{blind}: {:#?}", blind.examples);
}

#[test]
fn rows_of_the_c_library_of_arm64_equal_gimlis() {
    compare_file("libc6", "usr/lib/aarch64-linux-gnu/libc.so.6", 2);
}

#[test]
fn rows_of_the_cpp_library_of_arm64_equal_gimlis() {
    compare_file("libstdc++6", "usr/lib/aarch64-linux-gnu/libstdc++.so.6", 2);
}

#[test]
fn rows_of_libcrypto_of_arm64_equal_gimlis() {
    compare_file("libssl3t64", "usr/lib/aarch64-linux-gnu/libcrypto.so.3", 6);
}

#[test]
fn rows_of_bash_of_arm64_equal_gimlis() {
    compare_file("bash", "usr/bin/bash", 3);
}

/// In the few functions that overwrite their own frames, the return address is where they keep it.
#[test]
fn rows_of_gccs_unwinder_of_arm64_are_gimlis_but_where_it_overwrites_its_frame() {
    let path = "usr/lib/aarch64-linux-gnu/libgcc_s.so.1";
    let files = match arm64::files("libgcc-s1") {
        Ok(files) => files,
        Err(why) => return requirement::skip(path, &format!("no libgcc-s1 for arm64: {why:#}")).unwrap(),
    };
    let data = fs::read(files.join(path)).unwrap();
    let (table, comparison) = compare(&data).unwrap();
    assert!(comparison.compared > 1_000, "{comparison:?}");
    assert_eq!(comparison.unexplained, 0, "{:#?}", comparison.examples);
    // RaiseException, Resume, Resume_or_Rethrow and ForcedUnwind, each in one part or two.
    let parts = table.summary().functions[&RowSource::KnownFunction];
    assert!((4..=8).contains(&parts), "{parts} parts");
    assert!(comparison.differences[&Difference::OverwrittenFrame] >= 3 * parts, "{comparison:?}");
}
