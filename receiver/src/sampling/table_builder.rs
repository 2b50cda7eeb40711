//! Building unwind tables beside sampling, at low priority.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use object::ReadCache;
use sidewinder_address::LoadSegment;
use sidewinder_bpf::{PackedSegment, Packing, pack};
use sidewinder_process::{FileId, OpenedFile};
use sidewinder_unwind::validate::{Validation, validate};
use sidewinder_unwind::{UnwindTable, load_segments, unwind_table};
use thiserror::Error;

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
}

/// Reads a file's table and packs it.
pub(crate) fn build(content: &OpenedFile, packing: Packing) -> Result<Built, BuildError> {
    let (loads, table) = read_table(Positioned { content, at: 0 })?;
    let code = loads.iter().filter(|load| load.executable);
    Ok(Built { segments: code.flat_map(|load| pack(&table, load, packing)).collect(), loads })
}

/// Reads a file's table.
pub(crate) fn read_table(file: impl Read + Seek) -> Result<(Vec<LoadSegment>, UnwindTable), BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    Ok((load_segments(&file), unwind_table(&file)?))
}

/// Reads a file's table and checks it against the file's code.
pub(crate) fn read_validation(file: impl Read + Seek) -> Result<Validation, BuildError> {
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)?;
    Ok(validate(&file, &unwind_table(&file)?)?)
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
                let built = build(&order.content, order.packing);
                if outgoing.send((order.file, built)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { orders, results, in_progress: 0 })
    }

    pub(crate) fn order(&mut self, file: FileId, content: OpenedFile, packing: Packing) {
        self.in_progress += usize::from(self.orders.send(Order { file, content, packing }).is_ok());
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
