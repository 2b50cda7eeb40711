//! `sidewinder inspect`: the unwind table that the profiler would use for a file.

use std::io::{self, BufWriter, Cursor, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sidewinder_address::Svma;
use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_bpf::{PackedSegment, pack};
use sidewinder_config::open_input;
use sidewinder_debug_files::{Companions, DebugFile};
use sidewinder_process::vdso_image;
use sidewinder_tables::{BuildError, WholeTable, packing_for_mode, read_table, read_validation};
use sidewinder_text::ExternalText;
use sidewinder_unwind::method::{UnwindMethod, bytes_by_method, method_ranges};
use sidewinder_unwind::validate::Validation;
use sidewinder_unwind::{Entry, UnwindTable};

use super::{CommandResult, print_result};
use crate::cli::{InspectArgs, UnwindArg};

pub(crate) fn inspect(args: &InspectArgs) -> CommandResult {
    let wrong_file = || {
        Failure::new(ExitCause::Usage, format!("can't inspect {}", ExternalText::new(&args.file)))
            .with_next_step("give an executable or a shared library, or '[vdso]'")
    };
    let build_failed = |error: BuildError| wrong_file().with_source(error);
    let (image, debug_file) = open(&args.file).map_err(|error| wrong_file().with_source(error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.validate {
        let validation = read_validation(image, &debug_file).map_err(build_failed)?;
        return print_result(print_validation(&mut out, args, &validation).and_then(|()| out.flush()));
    }
    let whole = read_table(image, &debug_file).map_err(build_failed)?;
    let table = &whole.table;
    let result = match args.pc {
        Some(pc) => print_address(&mut out, table, Svma(pc), args.unwind),
        None if args.rows => print_rows(&mut out, table),
        None if args.ranges => print_ranges(&mut out, table, args.unwind),
        None => print_summary(&mut out, args, &whole),
    };
    print_result(result.and_then(|()| out.flush()))
}

/// A source that a table can be read from.
trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

fn open(path: &Path) -> io::Result<(Box<dyn ReadSeek>, DebugFile)> {
    if path == Path::new("[vdso]") {
        return Ok((Box::new(Cursor::new(vdso_image()?)), DebugFile::Searched(Companions::default())));
    }
    let file = open_input(path)?;
    let status = file.metadata()?;
    let path = path.canonicalize()?;
    let debug_file = DebugFile::from_own_root(path.as_os_str().as_bytes(), Some(status.uid()));
    Ok((Box::new(file), debug_file))
}

/// Prints the rows that contradict the code, one per line, and a summary of what was checked.
fn print_validation(out: &mut impl Write, args: &InspectArgs, validation: &Validation) -> io::Result<()> {
    validation.mismatches.iter().try_for_each(|mismatch| writeln!(out, "{mismatch}"))?;
    writeln!(
        out,
        "{}: {} of {} rows contradict the code; {} functions checked, {} given up; \
         {} instructions right, {} undecided, {} without a claim",
        ExternalText::new(&args.file),
        validation.rows_wrong,
        validation.rows,
        validation.functions,
        validation.functions_unresolved,
        validation.instructions_right,
        validation.instructions_open,
        validation.instructions_without_claim
    )
}

fn print_rows(out: &mut impl Write, table: &UnwindTable) -> io::Result<()> {
    table.rows().try_for_each(|row| writeln!(out, "{row}"))
}

/// The unwind method of a range if `unwind` restricts the methods.
fn effective_mode(mode: UnwindMethod, unwind: UnwindArg) -> String {
    match (unwind, mode) {
        (UnwindArg::FramePointers, UnwindMethod::Table(reason)) => {
            format!("none: frame pointers only ({reason})")
        }
        (UnwindArg::Tables, UnwindMethod::FramePointer) => "table: frame pointers not used".to_owned(),
        (_, mode) => mode.to_string(),
    }
}

fn print_ranges(out: &mut impl Write, table: &UnwindTable, unwind: UnwindArg) -> io::Result<()> {
    method_ranges(table).try_for_each(|range| {
        writeln!(out, "{}\t{}\t{}", range.start, range.end, effective_mode(range.method, unwind))
    })
}

fn print_address(out: &mut impl Write, table: &UnwindTable, pc: Svma, unwind: UnwindArg) -> io::Result<()> {
    let entry = table.lookup(pc);
    writeln!(out, "{pc}\t{entry}")?;
    writeln!(out, "mode: {}", effective_mode(UnwindMethod::from_entry(&entry), unwind))?;
    if let Entry::End(reason) = entry {
        writeln!(out, "why:  {reason}")?;
    }
    Ok(())
}

fn print_summary(out: &mut impl Write, args: &InspectArgs, whole: &WholeTable) -> io::Result<()> {
    let WholeTable { loads, code, table } = whole;
    let executable = || loads.iter().filter(|load| load.executable);
    let packing = packing_for_mode(args.unwind.into());
    let segments: Vec<PackedSegment> = executable().flat_map(|load| pack(table, load, packing)).collect();
    let text_bytes: u64 = code.iter().map(|range| range.end.0 - range.start.0).sum();
    let table_bytes: u64 = segments.iter().map(|segment| segment.bytes.len() as u64).sum();
    let rules = segments.iter().map(|segment| segment.rules).max().unwrap_or(0);
    let percent = |part: u64| 100.0 * part as f64 / text_bytes.max(1) as f64;

    writeln!(out, "{}", ExternalText::new(&args.file))?;
    writeln!(out, "  code        {text_bytes} bytes in {} segments", executable().count())?;
    writeln!(
        out,
        "  table       {table_bytes} bytes ({:.1}% of the code) in {} pieces, {} rows, at most {rules} rules a piece",
        percent(table_bytes),
        segments.len(),
        table.len()
    )?;
    let summary = table.summary();
    for (source, functions) in &summary.functions {
        let malformed = summary.malformed.get(source).copied().unwrap_or(0);
        writeln!(out, "  source      {source}: {functions} functions, {malformed} malformed")?;
    }
    for (reason, rows) in &summary.unsupported_rows {
        writeln!(out, "  unsupported {rows} rows: {reason}")?;
    }
    for (reason, bytes) in &summary.unresolved_bytes {
        writeln!(out, "  given up    {bytes} bytes of code: {reason}")?;
    }
    writeln!(out, "  unwind methods, by bytes of code:")?;
    let mut bytes_by_mode = std::collections::BTreeMap::<String, u64>::new();
    for (mode, bytes) in bytes_by_method(table, code) {
        *bytes_by_mode.entry(effective_mode(mode, args.unwind)).or_default() += bytes;
    }
    let mut rows: Vec<_> = bytes_by_mode.into_iter().collect();
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    for (mode, bytes) in rows {
        writeln!(out, "    {:>5.1}%  {mode}", percent(bytes))?;
    }
    writeln!(out, "  --rows, --ranges, --pc ADDRESS and --validate show more")
}
