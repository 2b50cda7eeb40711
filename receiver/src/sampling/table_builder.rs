//! Building unwind tables beside sampling, at low priority.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use object::{ReadCache, ReadRef};
use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_bpf::{PackedSegment, Packing, pack, pack_again};
use sidewinder_process::{FileId, OpenedFile};
use sidewinder_unwind::debug_file::DebugFileReference;
use sidewinder_unwind::validate::{Trust, Validation, settle, validate};
use sidewinder_unwind::{UnwindTable, load_segments, unwind_table_with};
use thiserror::Error;

use super::debug_file::DebugFile;

/// Why a file has no table.
#[derive(Debug, Error)]
pub(crate) enum BuildError {
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    #[error("no unwind table")]
    Unwind(#[from] sidewinder_unwind::Error),
}

/// A page-aligned part of a file, for which it has a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) file_offset: FileOffset,
    pub(crate) text_bytes: u64,
}

impl Part {
    pub(crate) fn of(segment: &PackedSegment) -> Self {
        Self { file_offset: segment.file_offset, text_bytes: segment.text_bytes }
    }

    pub(crate) fn end(self) -> FileOffset {
        FileOffset(self.file_offset.0.saturating_add(self.text_bytes))
    }

    pub(crate) fn contains(self, at: FileOffset) -> bool {
        self.file_offset <= at && at < self.end()
    }

    pub(crate) fn overlaps(self, other: &Range<FileOffset>) -> bool {
        self.file_offset < other.end && other.start < self.end()
    }

    /// The stated addresses of what a load segment has of the part.
    fn within(self, load: &LoadSegment) -> Option<Range<Svma>> {
        let load_end = FileOffset(load.file_offset.0.saturating_add(load.size));
        let (first, end) = (self.file_offset.max(load.file_offset), self.end().min(load_end));
        let start = load.svma_of(first)?;
        Some(start..start.checked_add(end.checked_offset_from(first)?)?)
    }
}

/// A file's table, or some of its segments, in the form that walks read.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) segments: Vec<PackedSegment>,
    /// Where in the file its machine code is all that there is: understood as a whole or not at all.
    pub(crate) by_machine_code: Vec<Range<FileOffset>>,
    pub(crate) debug_file: DebugFile,
}

/// Reads a file's table and packs it, as the trusted side has it.
fn build(
    content: &OpenedFile,
    packing: Packing,
    debug_file: &DebugFile,
    trust: Trust,
) -> Result<Built, BuildError> {
    let cache = ReadCache::new(Positioned { content, at: 0 });
    let file = object::File::parse(&cache)?;
    let (table, debug_file) = table_of(&file, debug_file, None)?;
    let table = settle(&file, table, trust)?;
    let loads = load_segments(&file);
    let code = loads.iter().filter(|load| load.executable);
    let segments = code.flat_map(|load| pack(&table, load, packing)).collect();
    let in_file = |code: Range<Svma>| {
        let start = loads.iter().find_map(|load| load.file_offset_of(code.start))?;
        Some(start..start.checked_add(code.end.checked_offset_from(code.start)?)?)
    };
    let by_machine_code = table.by_machine_code().filter_map(in_file).collect();
    Ok(Built { segments, by_machine_code, loads, debug_file: DebugFile::Known(debug_file) })
}

/// Reads and packs some segments of a file's table once more.
fn build_again(
    content: &OpenedFile,
    packing: Packing,
    debug_file: &DebugFile,
    parts: &[Part],
) -> Result<Built, BuildError> {
    let cache = ReadCache::new(Positioned { content, at: 0 });
    let file = object::File::parse(&cache)?;
    let loads = load_segments(&file);
    let places: Vec<_> = parts
        .iter()
        .filter_map(|part| {
            let code = loads.iter().filter(|load| load.executable);
            let (load, addresses) = code.filter_map(|load| Some((load, part.within(load)?))).next()?;
            Some((part, load, addresses))
        })
        .collect();
    let wanted: Vec<_> = places.iter().map(|(_, _, addresses)| addresses.clone()).collect();
    let (table, debug_file) = table_of(&file, debug_file, Some(&wanted))?;
    let again = |part: &Part, load| pack_again(&table, load, packing, part.file_offset..part.end());
    let segments = places.iter().map(|(part, load, _)| again(part, load)).collect();
    Ok(Built { segments, by_machine_code: Vec::new(), loads, debug_file: DebugFile::Known(debug_file) })
}

/// Reads a file's table, with the help of its debug file if it has one.
pub(crate) fn read_table(
    file: impl Read + Seek,
    debug_file: &DebugFile,
) -> Result<(Vec<LoadSegment>, UnwindTable), BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = table_of(&file, debug_file, None)?;
    Ok((load_segments(&file), table))
}

/// The table of a file, or of parts of it, and the debug file that helped.
fn table_of<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    debug_file: &DebugFile,
    parts: Option<&[Range<Svma>]>,
) -> Result<(UnwindTable, Option<Arc<File>>), BuildError> {
    let debug_file = debug_file.find(DebugFileReference::of(file));
    let debug_cache = debug_file.as_deref().map(ReadCache::new);
    let debug = debug_cache.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let table = unwind_table_with(file, debug.as_slice(), parts)?;
    Ok((table, debug_file))
}

/// Reads a file's table and checks it against the file's code.
pub(crate) fn read_validation(
    file: impl Read + Seek,
    debug_file: &DebugFile,
) -> Result<Validation, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let (table, _) = table_of(&file, debug_file, None)?;
    Ok(validate(&file, &table)?)
}

/// A mapped file as `object` reads it: by seeking and reading. Mapping it would turn a shrinking file into a signal.
struct Positioned<'content> {
    content: &'content OpenedFile,
    at: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Positioned<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.content.size_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// A thread that builds tables in the order in which they are asked for.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    orders: Sender<Order>,
    deliveries: Receiver<Delivery>,
    in_progress: usize,
}

/// What to build.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) file: FileId,
    pub(crate) content: OpenedFile,
    pub(crate) packing: Packing,
    pub(crate) debug_file: DebugFile,
    /// Segments that have been built before; `None`: the whole file.
    pub(crate) parts: Option<Vec<Part>>,
}

/// What an order came to.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) file: FileId,
    pub(crate) built: Result<Built, BuildError>,
    /// How long building it took.
    pub(crate) took: Duration,
}

impl Order {
    fn deliver(&self, trust: Trust) -> Delivery {
        let began = Instant::now();
        let built = match (&self.parts, trust) {
            (Some(parts), Trust::Rows) => build_again(&self.content, self.packing, &self.debug_file, parts),
            // The code is checked as a whole.
            _ => build(&self.content, self.packing, &self.debug_file, trust),
        };
        Delivery { file: self.file, built, took: began.elapsed() }
    }
}

/// How far the thread steps back behind the work of the machine.
const NICENESS: i32 = 5;

impl TableBuilder {
    pub(crate) fn start(trust: Trust) -> io::Result<Self> {
        let (orders, incoming) = mpsc::channel::<Order>();
        let (outgoing, deliveries) = mpsc::channel();
        thread::Builder::new().name("tables".to_owned()).spawn(move || {
            // On Linux niceness belongs to the thread. Without it, tables are built all the same.
            let _ = rustix::process::nice(NICENESS);
            for order in incoming {
                if outgoing.send(order.deliver(trust)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, deliveries, in_progress: 0 })
    }

    /// Asks for the table of a file, or for some of its segments once more.
    pub(crate) fn order(&mut self, order: Order) {
        self.in_progress += usize::from(self.orders.send(order).is_ok());
    }

    /// The next delivery, without waiting.
    pub(crate) fn next(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.try_recv().ok()?;
        self.in_progress -= 1;
        Some(delivery)
    }

    /// Orders that are not delivered yet.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }
}
