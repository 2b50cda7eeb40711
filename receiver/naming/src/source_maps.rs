//! The source maps of the scripts that a process runs, read from its files.
//!
//! A script is read from the root of its process, as are perf maps: only if the process could read it itself. Its text has to
//! be that which the process has loaded. The last comment of the script says where its map is: in a file of the same root, or in
//! the comment itself. What is elsewhere is not asked for.
//!
//! Owner: [`VmNames`](crate::vm::VmNames), whose thread reads the files. The threads that read the memory of processes look
//! maps up, and say which they have missed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::ops::AddAssign;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::read::DecoderReader;
use sidewinder_process::{OpenError, PathTrust, Pid, ProcRoot, ProcessRoot};
use sidewinder_vm::source_map::{
    MapLocation, NotLoaded, ScriptFile, ScriptKey, SourceMap, SourceMapCache, SourceMapError, SourceMaps,
    folder_of, script_path,
};
use tracing::debug;

use sidewinder_base::file_version::FileVersion;
use sidewinder_base::refusals::Refusals;

/// The longest script, and the longest file with a map, in bytes.
const SCRIPT_BYTES_MAX: u64 = 32 << 20;
const MAP_FILE_BYTES_MAX: u64 = 128 << 20;
/// The share of the memory for maps that one of them may take, as a divisor: a function may need those of two scripts at once.
const MAP_SHARE: usize = 2;
/// Scripts of a process that are remembered. Beyond this, all are forgotten.
const SCRIPTS_MAX: usize = 4096;
/// Maps of a process that are read at once; others are missed again.
const LOADS_MAX: usize = 64;
/// How often the map of a script is read again because there was no room to keep it.
const RELOADS_MAX: u32 = 16;
/// Base64 as it is in URLs of data, where some tools leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How the search for the map of a script ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapOutcome {
    /// It was read.
    Read,
    /// The script names none.
    None,
    /// There is no such file.
    Missing,
    /// The script on disk is not the one that runs.
    Changed,
    /// A file can't be read, or must not be.
    Unreadable,
    /// The map needs more memory than there is for one, or a file is too long.
    TooBig,
    /// It is no map.
    Malformed,
    /// It is at a URL of the network, or in a form that is not read.
    Unsupported,
}

impl MapOutcome {
    const ALL: [Self; 8] = [
        Self::Read,
        Self::None,
        Self::Missing,
        Self::Changed,
        Self::Unreadable,
        Self::TooBig,
        Self::Malformed,
        Self::Unsupported,
    ];

    const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::None => "none",
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Unreadable => "unreadable",
            Self::TooBig => "too_big",
            Self::Malformed => "malformed",
            Self::Unsupported => "unsupported",
        }
    }
}

/// The scripts whose maps were looked for, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SourceMapCounts([u64; MapOutcome::ALL.len()]);

impl SourceMapCounts {
    /// The number of scripts for each outcome, by its label.
    pub fn by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> {
        MapOutcome::ALL.map(MapOutcome::label).into_iter().zip(self.0)
    }
}

/// The outcomes that there were: `3 read, 1 missing`.
impl fmt::Display for SourceMapCounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.by_outcome().filter(|(_, count)| *count > 0);
        let texts: Vec<String> =
            found.map(|(label, count)| format!("{count} {}", label.replace('_', " "))).collect();
        out.write_str(if texts.is_empty() { "no script was looked at" } else { "" })?;
        out.write_str(&texts.join(", "))
    }
}

impl AddAssign for SourceMapCounts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, other)| *count += other);
    }
}

/// The maps of all processes.
#[derive(Debug)]
pub(crate) struct SourceMapStore {
    maps: SourceMapCache<MapKey>,
    map_bytes_max: usize,
    counts: [AtomicU64; MapOutcome::ALL.len()],
    refusals: Arc<Refusals>,
}

/// What identifies a map: the files that it is in, and the path that its sources are relative to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct MapKey {
    script: FileVersion,
    /// `None`: the map is in the script.
    map: Option<FileVersion>,
    path: Arc<str>,
}

impl SourceMapStore {
    /// `budget_bytes` limits the memory for all maps.
    pub(crate) fn new(budget_bytes: usize, refusals: Arc<Refusals>) -> Self {
        Self {
            maps: SourceMapCache::new(budget_bytes),
            map_bytes_max: budget_bytes / MAP_SHARE,
            counts: Default::default(),
            refusals,
        }
    }

    pub(crate) fn counts(&self) -> SourceMapCounts {
        let mut counts = SourceMapCounts::default();
        counts.0.iter_mut().zip(&self.counts).for_each(|(count, now)| *count = now.load(Ordering::Relaxed));
        counts
    }

    fn count(&self, outcome: MapOutcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The maps of a process.
#[derive(Debug)]
pub(crate) struct ProcessSourceMaps {
    store: Arc<SourceMapStore>,
    root: ProcessRoot,
    scripts: Mutex<ProcessScripts>,
}

#[derive(Default, Debug)]
struct ProcessScripts {
    known: HashMap<ScriptKey, KnownScript>,
    /// Those whose maps were missed.
    missed: HashSet<ScriptKey>,
}

/// A script whose map has been looked for.
#[derive(Debug)]
struct KnownScript {
    /// `None`: there is none that can be used.
    map: Option<MapKey>,
    reloads: u32,
}

impl SourceMaps for ProcessSourceMaps {
    fn find(&self, script: &ScriptKey) -> Result<Option<Arc<SourceMap>>, NotLoaded> {
        if script_path(&script.path).is_none() {
            return Ok(None);
        }
        let mut scripts = self.lock();
        if let Some(known) = scripts.known.get(script) {
            let Some(key) = &known.map else { return Ok(None) };
            if let Some(map) = self.store.maps.get(key) {
                return Ok(Some(map));
            }
        }
        if scripts.missed.len() < LOADS_MAX {
            scripts.missed.insert(script.clone());
        }
        Err(NotLoaded)
    }
}

impl ProcessSourceMaps {
    /// Those of a running process. If we may not follow its root, only files that our own root has too are found.
    ///
    /// # Errors
    /// If it has ended.
    pub(crate) fn new(pid: Pid, store: Arc<SourceMapStore>) -> Result<Self, OpenError> {
        let proc_root = ProcRoot::default();
        let root = ProcessRoot::from_pid(&proc_root, pid)
            .or_else(|_| ProcessRoot::own_in_place_of(&proc_root, pid))?;
        Ok(Self { store, root, scripts: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, ProcessScripts> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the maps that were missed.
    pub(crate) fn load_missed(&self) {
        let missed = std::mem::take(&mut self.lock().missed);
        for script in missed {
            let reloads = self.lock().known.get(&script).map_or(0, |known| known.reloads + 1);
            let result = match reloads {
                0..=RELOADS_MAX => self.load(&script),
                _ => Err(MapOutcome::TooBig),
            };
            if let Err(outcome) = result {
                debug!(pid = self.root.pid().0, script = ?script.path, ?outcome, "no source map");
            }
            if reloads == 0 || result.is_err() {
                self.store.count(result.as_ref().err().copied().unwrap_or(MapOutcome::Read));
            }
            let mut scripts = self.lock();
            if scripts.known.len() >= SCRIPTS_MAX {
                scripts.known.clear();
            }
            scripts.known.insert(script, KnownScript { map: result.ok(), reloads });
        }
    }

    /// Reads the map of a script into the store.
    fn load(&self, script: &ScriptKey) -> Result<MapKey, MapOutcome> {
        let path = script_path(&script.path).ok_or(MapOutcome::Unsupported)?;
        let file = self.open(&path, None)?;
        let metadata = file.metadata()?;
        let found = ScriptFile::read(&file, &path, SCRIPT_BYTES_MAX)?;
        if found.content != Some(script.content) {
            return Err(MapOutcome::Changed);
        }
        let script = FileVersion::from(&metadata);
        let mut key = MapKey { script, map: None, path: path.clone().into() };
        let bytes_max = self.store.map_bytes_max;
        let map = match found.map.ok_or(MapOutcome::None)? {
            MapLocation::File(map_path) => {
                // Who owns the script could have put anything into that.
                let map_file = self.open(&map_path, Some(metadata.uid()))?;
                let map_metadata = map_file.metadata()?;
                key.map = Some(FileVersion::from(&map_metadata));
                if map_metadata.len() > MAP_FILE_BYTES_MAX {
                    return Err(MapOutcome::TooBig);
                }
                if self.store.maps.get(&key).is_some() {
                    return Ok(key);
                }
                let input = BufReader::new(map_file.take(MAP_FILE_BYTES_MAX));
                SourceMap::read(input, folder_of(&map_path), bytes_max)?
            }
            MapLocation::Inline { offset, bytes } => {
                if self.store.maps.get(&key).is_some() {
                    return Ok(key);
                }
                (&file).seek(SeekFrom::Start(offset))?;
                let data = DecoderReader::new(file.take(bytes), &BASE64);
                SourceMap::read(BufReader::new(data), folder_of(&path), bytes_max)?
            }
            MapLocation::Unsupported => return Err(MapOutcome::Unsupported),
        };
        self.store.maps.add(key.clone(), map);
        Ok(key)
    }

    /// Opens a file that the process could read, and that belongs to its user, to root, or to `owner`.
    fn open(&self, path: &str, owner: Option<u32>) -> Result<File, MapOutcome> {
        let relative = path.trim_start_matches('/').as_bytes().to_vec();
        let opened = self.root.credentials().and_then(|reader| {
            let trust = PathTrust::Proven { reader: &reader, binary_owner: owner };
            self.root.open([relative].into_iter(), trust).next().unwrap_or(Err(OpenError::NotFound))
        });
        opened.map_err(|error| {
            self.store.refusals.record(self.root.pid(), path.as_bytes(), &error);
            match error {
                OpenError::NotFound => MapOutcome::Missing,
                _ => MapOutcome::Unreadable,
            }
        })
    }
}

impl From<io::Error> for MapOutcome {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::FileTooLarge { Self::TooBig } else { Self::Unreadable }
    }
}

impl From<SourceMapError> for MapOutcome {
    fn from(error: SourceMapError) -> Self {
        match error {
            // Data that are no Base64.
            SourceMapError::Unreadable(error) if error.kind() == io::ErrorKind::InvalidData => {
                Self::Malformed
            }
            SourceMapError::Unreadable(error) => error.into(),
            SourceMapError::TooBig => Self::TooBig,
            SourceMapError::Malformed(_) => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests;
