//! Unwind tables on disk: what was built of a file once is read back when the file is seen again, also by a later run.
//!
//! A table is found by its file's build ID. Because a process may write any build ID into a file, the name also has a digest of what
//! tells this file from others: its inode, size, time of change and ends. The directory is used only if nobody else may write
//! to it: its content decides how stacks are walked.
//!
//! A file of the directory consists of records, one for each segment of a table. Each has a digest. Files are written under another
//! name and renamed. Segments that are built later are appended, and replace earlier records of the same range.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::AddAssign;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use sidewinder_address::FileOffset;
use sidewinder_base::disk_cache::{
    CachedFile, SCANNED_MAX, UNFINISHED_MAX, UNFINISHED_PREFIX, UnfinishedFile, remove_oldest,
};
use sidewinder_bpf::{PackedSegment, Packing};
use sidewinder_process::{FileEntry, read_htlhash};
use sidewinder_unwind::validate::TrustedSide;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::built_table::{BuiltTable, TextRange};

/// The version of the format, which every file begins with.
const MAGIC: [u8; 8] = *b"swtable1";
const EXTENSION: &str = "table";
/// The most records that are read of a file. With [`SEGMENT_BYTES_MAX`] it bounds the memory for reading one.
const RECORDS_MAX: usize = 16_384;
/// More than any segment takes.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// The directory of tables, and its limit.
#[derive(Debug)]
pub struct SavedTables {
    directory: PathBuf,
    bytes_max: u64,
    /// A digest of this program: another version may build other tables.
    program: [u8; 32],
    /// What all files take, about: since the directory was last read, other runs may have changed it.
    held_bytes: AtomicU64,
    uses: AtomicU64,
    failures: AtomicU64,
}

/// The name under which the table of a file is saved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedTableName(String);

/// How often tables were read back, and could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SavedTableCounts {
    /// Tables that were read back instead of built.
    pub tables_read_back: u64,
    /// Tables that could not be written.
    pub tables_not_saved: u64,
}

impl AddAssign for SavedTableCounts {
    fn add_assign(&mut self, Self { tables_read_back, tables_not_saved }: Self) {
        self.tables_read_back += tables_read_back;
        self.tables_not_saved += tables_not_saved;
    }
}

impl SavedTables {
    /// Creates the directory if there is none. Its files take at most `bytes_max`.
    ///
    /// # Errors
    /// If it can't be created, or another user may write to it.
    pub fn open(directory: &Path, bytes_max: u64, trust: TrustedSide) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let status = fs::symlink_metadata(directory)?;
        let is_ours = status.uid() == rustix::process::geteuid().as_raw();
        if !status.is_dir() || !is_ours || status.mode() & 0o022 != 0 {
            let reason = "it is not a directory of this user that only they may write to";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        let tables = Self {
            directory: directory.to_owned(),
            bytes_max,
            program: digest_of_this_program(trust)?,
            held_bytes: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        tables.remove_oldest()?;
        Ok(tables)
    }

    /// The name for a file's table; `None` if the file has no build ID.
    pub fn name(&self, entry: &FileEntry, packing: Packing) -> Option<SavedTableName> {
        let status = entry.opened()?.file()?.metadata().ok()?;
        let ids = entry.build_ids();
        let mut digest = Sha256::new_with_prefix(self.program);
        digest.update(format!("{packing:?} {:?}", ids.go));
        digest.update(entry.hash()?.0);
        digest.update([status.ino(), status.size(), u64::from(status.uid())].as_bytes());
        digest.update([status.ctime(), status.ctime_nsec()].as_bytes());
        let id = match (&ids.gnu, &ids.go) {
            (Some(id), _) => {
                digest.update(id.as_bytes());
                hex::encode(id.as_bytes())
            }
            (None, Some(_)) => "go".to_owned(),
            (None, None) => return None,
        };
        let digest = digest.finalize();
        Some(SavedTableName(format!("{id}-{}.{EXTENSION}", hex::encode(&digest[..16]))))
    }

    /// The saved table of a file; `None` if there is none.
    pub fn find(&self, name: &SavedTableName) -> Option<SavedTable> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(self.directory.join(&name.0)).ok()?;
        SavedTable::read(file)
    }

    pub(crate) fn count_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins to save a file's table.
    pub fn begin(&self, name: &SavedTableName) -> Option<UnfinishedTable<'_>> {
        let file = self.counted(UnfinishedFile::create(&self.directory))?;
        let kept_as = self.directory.join(&name.0);
        let mut unfinished = UnfinishedTable { tables: self, file, kept_as, bytes: 0, is_abandoned: false };
        unfinished.write(&MAGIC);
        Some(unfinished)
    }

    /// The counts so far.
    pub fn counts(&self) -> SavedTableCounts {
        SavedTableCounts {
            tables_read_back: self.uses.load(Ordering::Relaxed),
            tables_not_saved: self.failures.load(Ordering::Relaxed),
        }
    }

    fn counted<T>(&self, result: io::Result<T>) -> Option<T> {
        if result.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        result.ok()
    }

    /// Counts bytes that were written, and removes files if there are too many.
    fn add_written(&self, bytes: u64) {
        let held_bytes = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held_bytes > self.bytes_max {
            self.counted(self.remove_oldest());
        }
    }

    /// Removes the files that were used longest ago until the others are within the limit, and what earlier runs left unfinished.
    fn remove_oldest(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut files: Vec<CachedFile> = Vec::new();
        for found in fs::read_dir(&self.directory)?.take(SCANNED_MAX) {
            let path = found?.path();
            let Ok(status) = fs::symlink_metadata(&path) else { continue };
            let used_at = status.modified().unwrap_or(now);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_abandoned = name.starts_with(UNFINISHED_PREFIX)
                && now.duration_since(used_at).unwrap_or_default() > UNFINISHED_MAX;
            if is_abandoned {
                fs::remove_file(&path)?;
            } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
                files.push((used_at, status.len(), path));
            }
        }
        self.held_bytes.store(remove_oldest(files, self.bytes_max)?, Ordering::Relaxed);
        Ok(())
    }
}

/// The version of this program, and its option that tables depend on.
fn digest_of_this_program(trust: TrustedSide) -> io::Result<[u8; 32]> {
    let program = File::open("/proc/self/exe")?;
    let status = program.metadata()?;
    let mut digest = Sha256::new_with_prefix(env!("CARGO_PKG_VERSION"));
    digest.update(format!("{trust:?}"));
    digest.update(read_htlhash(&program, status.len())?.0);
    digest.update([status.mtime(), status.mtime_nsec()].as_bytes());
    Ok(digest.finalize().into())
}

/// What a record says before its segment, in the byte order of this machine.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Debug)]
#[repr(C)]
struct RecordHeader {
    /// Of the rest of the header, and of the segment.
    digest: [u8; 16],
    file_offset: u64,
    text_bytes: u64,
    /// The size of the segment; 0: there was no room to build it.
    bytes: u32,
    /// 1 if its rows come from unwind information alone.
    is_self_contained: u32,
}

impl RecordHeader {
    fn new(range: TextRange, is_self_contained: bool, segment: &[u8]) -> Self {
        let mut header = Self {
            digest: [0; 16],
            file_offset: range.file_offset.0,
            text_bytes: range.text_bytes,
            bytes: segment.len() as u32,
            is_self_contained: is_self_contained.into(),
        };
        header.digest = header.expected_digest(segment);
        header
    }

    fn expected_digest(&self, segment: &[u8]) -> [u8; 16] {
        let mut digest = Sha256::new_with_prefix(&self.as_bytes()[size_of_val(&self.digest)..]);
        digest.update(segment);
        let mut half = [0; 16];
        half.copy_from_slice(&digest.finalize()[..16]);
        half
    }

    fn range(&self) -> TextRange {
        TextRange { file_offset: FileOffset(self.file_offset), text_bytes: self.text_bytes }
    }
}

/// A segment of a saved table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedSegment {
    header: RecordHeader,
    /// Where its bytes are in the file.
    at: u64,
}

impl SavedSegment {
    pub(crate) fn range(&self) -> TextRange {
        self.header.range()
    }

    /// Whether there was room to build it.
    pub(crate) fn is_built(&self) -> bool {
        self.header.bytes > 0
    }

    pub(crate) fn is_self_contained(&self) -> bool {
        self.header.is_self_contained != 0
    }
}

/// The saved table of one file.
#[derive(Debug)]
pub struct SavedTable {
    file: File,
    /// Sorted by range; none has the same range as another.
    segments: Vec<SavedSegment>,
}

impl SavedTable {
    /// `None` if it is not a whole file of ours.
    fn read(file: File) -> Option<Self> {
        let status = file.metadata().ok()?;
        if !status.is_file() || status.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, 0).ok()?;
        if magic != MAGIC {
            return None;
        }
        let mut segments = Vec::new();
        let mut at = MAGIC.len() as u64;
        while at < status.len() {
            let mut header = [0; size_of::<RecordHeader>()];
            file.read_exact_at(&mut header, at).ok()?;
            let header = RecordHeader::read_from_bytes(&header).ok()?;
            at += size_of::<RecordHeader>() as u64;
            let end = at + u64::from(header.bytes);
            if end > status.len() || header.bytes > SEGMENT_BYTES_MAX || segments.len() >= RECORDS_MAX {
                return None;
            }
            segments.push(SavedSegment { header, at });
            at = end;
        }
        // Of records of the same range the last one counts.
        segments.reverse();
        segments
            .sort_by_key(|segment: &SavedSegment| (segment.header.file_offset, segment.header.text_bytes));
        segments.dedup_by_key(|segment| segment.range());
        // A table that is used is kept longer than others.
        _ = file.set_modified(SystemTime::now());
        Some(Self { file, segments })
    }

    pub(crate) fn segments(&self) -> &[SavedSegment] {
        &self.segments
    }

    /// The segment of exactly this range, if it was built.
    pub(crate) fn segment_of(&self, range: TextRange) -> Option<PackedSegment> {
        let segment = self.segments.iter().find(|segment| segment.is_built() && segment.range() == range)?;
        self.load(segment)
    }

    /// `None` if its bytes are not those that were written.
    pub(crate) fn load(&self, segment: &SavedSegment) -> Option<PackedSegment> {
        let mut bytes = vec![0; segment.header.bytes as usize];
        self.file.read_exact_at(&mut bytes, segment.at).ok()?;
        let is_intact = segment.header.expected_digest(&bytes) == segment.header.digest;
        let packed = PackedSegment::from_bytes(bytes).filter(|_| is_intact)?;
        (TextRange::from(&packed) == segment.range()).then_some(packed)
    }

    /// Adds segments that were built later.
    pub(crate) fn append<'built>(
        &self,
        tables: &SavedTables,
        segments: impl Iterator<Item = &'built PackedSegment>,
        are_self_contained: bool,
    ) {
        for segment in segments {
            // One write, which is appended as a whole.
            let mut record = Vec::new();
            push_record(&mut record, segment.into(), are_self_contained, &segment.bytes);
            if tables.counted((&self.file).write_all(&record)).is_some() {
                tables.add_written(record.len() as u64);
            }
        }
    }
}

fn push_record(out: &mut Vec<u8>, range: TextRange, is_self_contained: bool, segment: &[u8]) {
    out.extend(RecordHeader::new(range, is_self_contained, segment).as_bytes());
    out.extend(segment);
}

/// A table that is being saved. It is removed unless it is [finished](Self::finish).
#[derive(Debug)]
pub struct UnfinishedTable<'tables> {
    tables: &'tables SavedTables,
    file: UnfinishedFile,
    kept_as: PathBuf,
    bytes: u64,
    /// A write has failed, or there is no room for so large a table.
    is_abandoned: bool,
}

impl UnfinishedTable<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.is_abandoned |= self.bytes > self.tables.bytes_max;
        if !self.is_abandoned {
            self.is_abandoned = self.tables.counted(self.file.file.write_all(bytes)).is_none();
        }
    }

    /// Adds what was built, and the ranges for which there was no room.
    pub(crate) fn add(&mut self, built: &BuiltTable) {
        let mut record = Vec::new();
        for segment in &built.segments {
            record.clear();
            push_record(&mut record, segment.into(), built.is_self_contained(segment.into()), &segment.bytes);
            self.write(&record);
        }
        for range in &built.unbuilt {
            record.clear();
            push_record(&mut record, *range, true, &[]);
            self.write(&record);
        }
    }

    /// Keeps it as the table of its file.
    pub(crate) fn finish(self) {
        if !self.is_abandoned && self.tables.counted(self.file.keep(&self.kept_as)).is_some() {
            self.tables.add_written(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    const NAME: &str = "0badcafe-00.table";

    fn open(directory: &Path, bytes_max: u64) -> SavedTables {
        SavedTables::open(directory, bytes_max, TrustedSide::Rows).unwrap()
    }

    fn name() -> SavedTableName {
        SavedTableName(NAME.to_owned())
    }

    fn range(page: u64) -> TextRange {
        TextRange { file_offset: FileOffset(page << 12), text_bytes: 1 << 12 }
    }

    /// An empty segment of one page at offset 0, and a range that was not built.
    fn built() -> BuiltTable {
        BuiltTable {
            segments: vec![PackedSegment::empty()],
            unbuilt: vec![range(7)],
            from_machine_code: vec![FileOffset(16)..FileOffset(32)],
            ..BuiltTable::with_loads(Vec::new())
        }
    }

    fn save(tables: &SavedTables) {
        let mut unfinished = tables.begin(&name()).unwrap();
        unfinished.add(&built());
        unfinished.finish();
    }

    #[test]
    fn a_table_is_read_back_as_it_was_built() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(&folder.path().join("new/tables"), 1 << 20);
        assert!(tables.find(&name()).is_none());
        save(&tables);
        let saved = tables.find(&name()).unwrap();
        let [segment, unbuilt] = saved.segments() else { panic!("{saved:?}") };
        assert!(segment.is_built() && !segment.is_self_contained());
        assert_eq!(saved.load(segment).unwrap().bytes, PackedSegment::empty().bytes);
        assert_eq!((unbuilt.range(), unbuilt.is_built()), (range(7), false));
        assert!(saved.load(unbuilt).is_none());
        assert!(saved.segment_of(range(0)).is_some() && saved.segment_of(range(7)).is_none());
        assert_eq!(tables.counts().tables_not_saved, 0);
    }

    #[test]
    fn a_segment_that_is_built_later_replaces_the_range_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path(), 1 << 20);
        let mut unfinished = tables.begin(&name()).unwrap();
        unfinished.add(&BuiltTable { segments: Vec::new(), unbuilt: vec![range(0), range(7)], ..built() });
        unfinished.finish();
        let saved = tables.find(&name()).unwrap();
        saved.append(&tables, [PackedSegment::empty()].iter(), true);
        let saved = tables.find(&name()).unwrap();
        assert_eq!(saved.segments().len(), 2);
        assert!(saved.segment_of(range(0)).is_some());
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path(), 1 << 20);
        save(&tables);
        let path = folder.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        let is_boundary = |bytes: usize| {
            let first = MAGIC.len() + size_of::<RecordHeader>() + PackedSegment::empty().bytes.len();
            [MAGIC.len(), first, whole.len()].contains(&bytes)
        };
        for bytes in 0..whole.len() {
            fs::write(&path, &whole[..bytes]).unwrap();
            assert_eq!(tables.find(&name()).is_some(), is_boundary(bytes), "{bytes}");
        }
        for at in MAGIC.len()..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x81;
            fs::write(&path, &changed).unwrap();
            let Some(saved) = tables.find(&name()) else { continue };
            for segment in saved.segments().iter().filter(|segment| segment.is_built()) {
                let is_of_other_record = at >= segment.at as usize + segment.header.bytes as usize;
                assert!(saved.load(segment).is_none() || is_of_other_record, "{at}");
            }
        }
    }

    #[test]
    fn an_unfinished_table_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path(), 1 << 20);
        let mut unfinished = tables.begin(&name()).unwrap();
        unfinished.add(&built());
        drop(unfinished);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_limit_holds_for_one_table_and_for_all() {
        let folder = tempfile::tempdir().unwrap();
        let table_bytes = {
            let tables = open(folder.path(), 1 << 20);
            save(&tables);
            fs::metadata(folder.path().join(NAME)).unwrap().len()
        };
        let old = File::options().write(true).open(folder.path().join(NAME)).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        let tables = open(folder.path(), table_bytes);
        let other = SavedTableName("0badcafe-01.table".to_owned());
        let mut unfinished = tables.begin(&other).unwrap();
        unfinished.add(&built());
        unfinished.finish();
        assert!(tables.find(&name()).is_none() && tables.find(&other).is_some());
        let mut too_large = tables.begin(&name()).unwrap();
        too_large.add(&built());
        too_large.add(&built());
        too_large.finish();
        assert!(tables.find(&name()).is_none() && tables.find(&other).is_some());
        assert_eq!(tables.counts().tables_not_saved, 0);
    }

    #[test]
    fn what_is_appended_counts_toward_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        save(&open(folder.path(), 1 << 20));
        let table_bytes = fs::metadata(folder.path().join(NAME)).unwrap().len();
        let tables = open(folder.path(), table_bytes);
        let saved = tables.find(&name()).unwrap();
        saved.append(&tables, [PackedSegment::empty()].iter(), true);
        assert!(tables.find(&name()).is_none(), "it has grown beyond the limit");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(&folder.path().join("tables"), 1 << 20);
        save(&tables);
        let (path, elsewhere) = (folder.path().join("tables").join(NAME), folder.path().join("elsewhere"));
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(tables.find(&name()).is_none());
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(SavedTables::open(&shared, 1, TrustedSide::Rows).is_err());
        std::os::unix::fs::symlink(folder.path().join("tables"), folder.path().join("link")).unwrap();
        assert!(SavedTables::open(&folder.path().join("link"), 1, TrustedSide::Rows).is_err());
    }

    #[test]
    fn a_directory_that_vanishes_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(&folder.path().join("tables"), 1 << 20);
        fs::remove_dir(folder.path().join("tables")).unwrap();
        assert!(tables.begin(&name()).is_none());
        assert_eq!(tables.counts().tables_not_saved, 1);
    }
}
