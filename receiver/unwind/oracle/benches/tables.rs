//! Measures the cost of unwind tables: bytes for rows and text, time and heap to make them, compared with gimli's own
//! walk through the same rows, which keeps none.
//!
//! `cargo bench --profile release -p sidewinder-unwind-oracle --bench tables -- [FILE]...`
#![forbid(unsafe_code)]

use std::error::Error;
use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindContext, UnwindSection as _};
use object::{File, Object as _, ObjectSection as _};
use peak_alloc::PeakAlloc;
use sidewinder_bpf::{Packing, pack};
use sidewinder_unwind::{Entry, UnwindTable, load_segments, unwind_table};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The fastest of this many runs counts: the others were delayed by something else.
const RUNS: u32 = 5;

/// Measured by default: the first of each line that is installed.
const BINARIES: [&[&str]; 5] = [
    &["/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1"],
    &["/usr/bin/node", "/usr/local/bin/node"],
    &["/usr/lib/x86_64-linux-gnu/libcrypto.so.3"],
    &["/usr/lib/x86_64-linux-gnu/libc.so.6"],
    &["/usr/local/go/bin/go", "/usr/lib/go/bin/go"],
];

fn main() -> Result<(), Box<dyn Error>> {
    if cfg!(debug_assertions) {
        eprintln!("built with checks: use `cargo bench --profile release`");
        std::process::exit(2);
    }
    let is_file = |argument: &OsString| !argument.to_string_lossy().starts_with("--");
    let named: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(is_file)
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .collect();
    let installed =
        || BINARIES.iter().filter_map(|paths| paths.iter().map(PathBuf::from).find(|p| p.is_file()));
    let files = if named.is_empty() { installed().collect() } else { named };
    println!(
        "{:>9} {:>9} {:>7} {:>7} {:>8} {:>11} {:>11} {:>9}",
        "rows", "packed", "bytes", "% of", "making", "rows/s", "gimli", "heap KiB"
    );
    println!(
        "{:>9} {:>9} {:>7} {:>7} {:>8} {:>11} {:>11} {:>9}",
        "", "bytes", "a row", "text", "ms", "", "rows/s", "beyond"
    );
    files.iter().try_for_each(|path| measure(path))
}

fn measure(path: &Path) -> Result<(), Box<dyn Error>> {
    let data = std::fs::read(path)?;
    let file = File::parse(&*data)?;
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let table = unwind_table(&file)?;
    let heap_beyond_bytes = HEAP.peak_usage().saturating_sub(before + heap_bytes(&table));
    let making = quickest(|| unwind_table(&file).is_ok());
    let gimli = match gimli_rows(&file) {
        Some(rows) => {
            let time = quickest(|| gimli_rows(&file).is_some());
            format!("{:.0}", rows as f64 / time.as_secs_f64())
        }
        None => "-".to_owned(),
    };

    let loads = load_segments(&file);
    let code = || loads.iter().filter(|load| load.executable);
    let text_bytes: u64 = code().map(|load| load.size).sum();
    let packed = code().flat_map(|load| pack(&table, load, Packing::Auto));
    let packed_bytes: usize = packed.map(|segment| segment.bytes.len()).sum();
    println!(
        "{:>9} {packed_bytes:>9} {:>7.2} {:>6.1}% {:>8.1} {:>11.0} {gimli:>11} {:>9}  {}",
        table.len(),
        packed_bytes as f64 / table.len().max(1) as f64,
        100.0 * packed_bytes as f64 / text_bytes.max(1) as f64,
        making.as_secs_f64() * 1e3,
        table.len() as f64 / making.as_secs_f64(),
        heap_beyond_bytes >> 10,
        path.to_string_lossy()
    );
    Ok(())
}

fn quickest<T>(mut work: impl FnMut() -> T) -> Duration {
    let once = |_| {
        let began = Instant::now();
        black_box(work());
        began.elapsed()
    };
    (0..RUNS).map(once).min().unwrap_or(Duration::MAX)
}

fn heap_bytes(table: &UnwindTable) -> usize {
    table.len() * (size_of::<u32>() + size_of::<u16>()) + size_of_val::<[Entry]>(table.entries())
}

/// Evaluates every row of `.eh_frame` with gimli and keeps none. Returns how many there are, if all can be read.
fn gimli_rows(file: &File<'_>) -> Option<u64> {
    let section = file.section_by_name(".eh_frame")?;
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let eh_frame = EhFrame::from(EndianSlice::new(section.data().ok()?, LittleEndian));
    let mut context = UnwindContext::new();
    let mut entries = eh_frame.entries(&bases);
    let mut rows = 0;
    while let Some(entry) = entries.next().ok()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        let mut of_fde = fde.rows(&eh_frame, &bases, &mut context).ok()?;
        while let Some(row) = of_fde.next_row().ok()? {
            black_box(row);
            rows += 1;
        }
    }
    Some(rows)
}
