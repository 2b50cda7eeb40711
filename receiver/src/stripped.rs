//! The binaries without symbols that most samples of a recording are in, and what has their symbols.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sidewinder_bpf::{RawFrame, RawFrameKind};
use sidewinder_message::{FileInfo, SampleEvent};
use sidewinder_naming::{FrameLocation, Namer};
use sidewinder_process::FileId;
use sidewinder_render::group_thousands;
use sidewinder_text::ExternalText;

use crate::symbol_package::{SymbolPackage, advice, packages_of};

/// A binary is reported if at least this share of all samples is in code of it without symbols, as a divisor.
const REPORTED_SHARE: u64 = 100;
/// The most binaries that are reported.
const BINARIES_MAX: usize = 5;

/// Where the samples of a recording are: the innermost frames outside of the kernel.
#[derive(Debug, Default)]
pub(crate) struct InnermostFrames {
    samples: u64,
    in_files: HashMap<RawFrame, u64>,
}

/// A binary that has samples in code without symbols.
#[derive(Debug)]
struct StrippedBinary {
    /// As its processes see it.
    path: String,
    /// In hexadecimal digits.
    build_id: Option<String>,
    /// The samples whose innermost frame outside of the kernel has no symbol.
    samples: u64,
    package: Option<SymbolPackage>,
}

/// The binaries to report, those with the most samples first.
#[derive(Debug, Default)]
pub(crate) struct StrippedBinaries {
    binaries: Vec<StrippedBinary>,
    /// Of the whole recording.
    samples: u64,
    /// Whether servers have been asked for the symbols.
    asks_servers: bool,
}

impl InnermostFrames {
    /// Notes a sample.
    pub(crate) fn note(&mut self, event: &SampleEvent) {
        self.samples += 1;
        let frames = event.stack.iter().flat_map(|stack| stack.frames.iter());
        let innermost = frames.into_iter().find(|frame| frame.kind() != Some(RawFrameKind::Kernel));
        if let Some(frame) =
            innermost.filter(|frame| matches!(frame.kind(), Some(RawFrameKind::Native { .. })))
        {
            *self.in_files.entry(*frame).or_default() += 1;
        }
    }

    /// The binaries to report. `asks_servers`: servers have been asked for their symbols.
    pub(crate) fn stripped_binaries(&self, namer: &mut Namer, asks_servers: bool) -> StrippedBinaries {
        let mut by_file = HashMap::<FileId, (Arc<FileInfo>, u64)>::new();
        namer.resolve_in_files(self.in_files.keys().copied(), |frame, named| {
            // For lack of memory or time, functions may be missing that symbols name.
            if let FrameLocation::File { id, facts, .. } = &named.location
                && named.functions.is_empty()
                && !named.is_provisional
                && !facts.is_memory_file()
            {
                let count = self.in_files.get(&frame).copied().unwrap_or(0);
                by_file.entry(*id).or_insert_with(|| (Arc::clone(facts), 0)).1 += count;
            }
        });
        let mut files: Vec<_> = by_file.into_values().collect();
        files.retain(|(_, count)| *count >= self.samples.div_ceil(REPORTED_SHARE).max(1));
        files.sort_by(|(one, one_count), (other, other_count)| {
            (Reverse(one_count), &one.path).cmp(&(Reverse(other_count), &other.path))
        });
        files.truncate(BINARIES_MAX);
        let opened: Vec<_> =
            files.iter().filter_map(|(info, _)| Some((info.path.as_str(), info.content.as_ref()?))).collect();
        let mut packages: HashMap<&str, Option<SymbolPackage>> =
            opened.iter().map(|(path, _)| *path).zip(packages_of(&opened)).collect();
        let binary = |(info, samples): &(Arc<FileInfo>, u64)| StrippedBinary {
            path: info.path.clone(),
            build_id: info.build_ids.gnu.as_ref().map(ToString::to_string),
            samples: *samples,
            package: packages.remove(info.path.as_str()).flatten(),
        };
        let binaries = files.iter().map(binary).collect();
        StrippedBinaries { binaries, samples: self.samples, asks_servers }
    }
}

impl StrippedBinaries {
    /// A line for each, with its end.
    pub(crate) fn lines(&self) -> String {
        let line = |binary: &StrippedBinary| {
            let StrippedBinary { path, build_id, samples, package } = binary;
            let build_id = build_id.as_ref().map_or_else(String::new, |id| format!(" (build ID {id})"));
            format!(
                "  {}{build_id}: {} of {} samples are in code without symbols: {}\n",
                ExternalText::new(path),
                group_thousands(*samples),
                group_thousands(self.samples),
                advice(package.as_ref(), self.asks_servers),
            )
        };
        self.binaries.iter().map(line).collect()
    }

    /// As JSON; the keys are a public interface.
    pub(crate) fn to_json(&self) -> Value {
        let binary = |binary: &StrippedBinary| {
            json!({
                "binary": binary.path,
                "build_id": binary.build_id,
                "without_symbols": binary.samples,
                "samples": self.samples,
                "next": advice(binary.package.as_ref(), self.asks_servers),
            })
        };
        self.binaries.iter().map(binary).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_binary_its_build_id_and_what_has_its_symbols() {
        let binary = StrippedBinary {
            path: "/usr/lib/libz\u{1b}.so.1".to_owned(),
            build_id: Some("0aff".to_owned()),
            samples: 4512,
            package: Some(SymbolPackage::Debian("zlib1g".to_owned())),
        };
        let stripped = StrippedBinaries { binaries: vec![binary], samples: 5000, asks_servers: false };
        assert_eq!(
            stripped.lines(),
            "  /usr/lib/libz\\u{1b}.so.1 (build ID 0aff): 4,512 of 5,000 samples are in code without symbols: \
             install zlib1g-dbgsym, or use --debuginfod\n"
        );
        assert_eq!(stripped.to_json()[0]["next"], "install zlib1g-dbgsym, or use --debuginfod");
    }
}
