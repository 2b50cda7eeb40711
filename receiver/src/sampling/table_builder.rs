//! Building unwind tables beside sampling, at low priority.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use object::ReadCache;
use sidewinder_address::LoadSegment;
use sidewinder_bpf::{PackedSegment, Packing, pack};
use sidewinder_process::{FileId, OpenedFile};
use sidewinder_unwind::debug_file::DebugFileReference;
use sidewinder_unwind::{UnwindTable, load_segments, unwind_table, unwind_table_with};
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

/// A file's table, in the form that walks read.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) segments: Vec<PackedSegment>,
    pub(crate) debug_file: DebugFile,
}

/// Reads a file's table and packs it.
pub(crate) fn build(
    content: &OpenedFile,
    packing: Packing,
    debug_file: &DebugFile,
) -> Result<Built, BuildError> {
    let TableRead { loads, table, debug_file } = read_table(Positioned { content, at: 0 }, debug_file)?;
    let code = loads.iter().filter(|load| load.executable);
    let segments = code.flat_map(|load| pack(&table, load, packing)).collect();
    Ok(Built { segments, loads, debug_file: DebugFile::Known(debug_file) })
}

/// A file's table, and what it was read from.
#[derive(Debug)]
pub(crate) struct TableRead {
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) table: UnwindTable,
    pub(crate) debug_file: Option<Arc<File>>,
}

/// Reads a file's table, with the help of its debug file if it has one.
pub(crate) fn read_table(file: impl Read + Seek, debug_file: &DebugFile) -> Result<TableRead, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    let debug_file = debug_file.find(DebugFileReference::of(&file));
    let debug_cache = debug_file.as_deref().map(ReadCache::new);
    let debug = debug_cache.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let table = match debug {
        Some(debug) => unwind_table_with(&file, &[debug])?,
        None => unwind_table(&file)?,
    };
    Ok(TableRead { loads: load_segments(&file), table, debug_file })
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
    results: Receiver<(FileId, Result<Built, BuildError>)>,
    in_progress: usize,
}

#[derive(Debug)]
struct Order {
    file: FileId,
    content: OpenedFile,
    packing: Packing,
    debug_file: DebugFile,
}

/// How far the thread steps back behind the work of the machine.
const NICENESS: i32 = 10;

impl TableBuilder {
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, incoming) = mpsc::channel::<Order>();
        let (outgoing, results) = mpsc::channel();
        thread::Builder::new().name("tables".to_owned()).spawn(move || {
            // On Linux niceness belongs to the thread. Without it, tables are built all the same.
            let _ = rustix::process::nice(NICENESS);
            for order in incoming {
                let built = build(&order.content, order.packing, &order.debug_file);
                if outgoing.send((order.file, built)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, results, in_progress: 0 })
    }

    pub(crate) fn order(
        &mut self,
        file: FileId,
        content: OpenedFile,
        packing: Packing,
        debug_file: DebugFile,
    ) {
        let order = Order { file, content, packing, debug_file };
        self.in_progress += usize::from(self.orders.send(order).is_ok());
    }

    /// The next table that is ready, without waiting.
    pub(crate) fn next(&mut self) -> Option<(FileId, Result<Built, BuildError>)> {
        let result = self.results.try_recv().ok()?;
        self.in_progress -= 1;
        Some(result)
    }

    /// Tables asked for and not yet ready.
    pub(crate) fn in_progress(&self) -> usize {
        self.in_progress
    }
}
