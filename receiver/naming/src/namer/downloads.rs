//! Debug files of servers for the files that frames are in.

use std::collections::HashMap;
use std::sync::Arc;

use object::{File, ReadCache};
use sidewinder_debug_files::debuginfod::{Answer, BuildIdText, Debuginfod, Fetched};
use sidewinder_debug_files::{SeekableContent, has_debug_info};
use sidewinder_process::FileId;

use sidewinder_message::FileInfo;

/// What is known of the debug file of a file.
#[derive(Clone, Debug)]
enum Download {
    /// The file has its own, or can't be asked for.
    NotWanted,
    /// It was asked for.
    Pending(BuildIdText),
    /// The servers have responded.
    Done(Option<Arc<Fetched>>),
}

/// The debug files that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Downloads {
    files: HashMap<FileId, Download>,
    /// Whether look-ups wait for what was asked for.
    waits: bool,
}

/// What there is for one file now.
#[derive(Default)]
pub(crate) struct Downloaded {
    pub file: Option<Arc<Fetched>>,
    /// Whether it was not there at the previous look-up.
    pub(super) has_arrived: bool,
    /// Whether it may still arrive.
    pub(super) is_pending: bool,
}

impl Downloads {
    /// From now on, look-ups wait for what was asked for.
    pub(super) fn start_waiting(&mut self) {
        self.waits = true;
    }

    pub(crate) fn forget(&mut self, id: FileId) {
        self.files.remove(&id);
    }

    /// What servers have for a file, which are asked at the first time.
    pub(crate) fn get(&mut self, servers: Option<&Debuginfod>, id: FileId, info: &FileInfo) -> Downloaded {
        let Some(servers) = servers else { return Downloaded::default() };
        let known = self.files.entry(id).or_insert_with(|| match wanted_build_id(info) {
            Some(build_id) => Download::Pending(build_id),
            None => Download::NotWanted,
        });
        let build_id = match known {
            Download::NotWanted => return Downloaded::default(),
            Download::Done(file) => return Downloaded { file: file.clone(), ..Downloaded::default() },
            Download::Pending(build_id) => build_id,
        };
        let answer = match self.waits {
            true => servers.wait(build_id).map_or(Answer::Absent, Answer::Found),
            false => servers.poll(build_id),
        };
        let file = match answer {
            Answer::Pending => return Downloaded { is_pending: true, ..Downloaded::default() },
            Answer::Absent => None,
            Answer::Found(file) => Some(file),
        };
        *known = Download::Done(file.clone());
        Downloaded { has_arrived: file.is_some(), file, is_pending: false }
    }
}

/// The build ID to ask for: that of a file without debug information, here or in its debug file.
fn wanted_build_id(info: &FileInfo) -> Option<BuildIdText> {
    let build_id = BuildIdText::new(&info.build_ids.gnu.as_ref()?.to_string())?;
    // What is no file, as the kernel's vDSO, has no debug file either.
    let content = info.content.as_ref().filter(|content| content.file().is_some())?;
    let cache = ReadCache::new(SeekableContent::new(content));
    let is_complete =
        info.companions.has_debug_info() || File::parse(&cache).is_ok_and(|file| has_debug_info(&file));
    (!is_complete).then_some(build_id)
}
