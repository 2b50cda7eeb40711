//! What frames are called.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;

use sidewinder_address::{Avma, CodeAddress, FileOffset, LoadSegment, Svma};
use sidewinder_bpf::{Opener, Outcome, RawFrame, RawFrameKind};
use sidewinder_process::{FileId, OpenedFile, ProcessDescription, ProcessKey, ReadAt};
use sidewinder_symbolize::{
    BinaryFiles, CodeFrame, Image, KernelName, Language, Lookup, SymbolName, Symbolizer, SymbolizerOptions,
    SymbolizerStats, UnnamedReason, unnamed_frame,
};

use crate::jit::{JitName, JitNames, JitSource, Runtime};
use crate::kernel_names::KernelNameCache;
use crate::refusals::RefusedFiles;
use crate::sampling::debug_files::DebugRoots;
use crate::sampling::message::FileInfo;

/// A frame with all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct NamedFrame {
    pub(crate) location: FrameLocation,
    /// What symbols and debug information say of it, inlined calls first; empty where they say nothing.
    pub(crate) functions: Arc<[CodeFrame]>,
    /// What to call it otherwise: the kernel's function, or `file+0x...`.
    pub(crate) name: Arc<str>,
    pub(crate) origin: CodeOrigin,
    /// Whether a name was not looked for in all that there is, so that there may be one the next time.
    pub(crate) is_provisional: bool,
    /// Whether only a frame pointer that nothing vouches for says that this is a caller.
    pub(crate) is_guessed: bool,
}

/// Where a frame is. Return addresses are already moved into the call.
#[derive(Clone, Debug)]
pub(crate) enum FrameLocation {
    /// In a file, at an address as the file states it, in one of its segments.
    File { id: FileId, facts: Arc<FileInfo>, svma: Svma, load: LoadSegment },
    /// In the kernel.
    Kernel { address: u64 },
    /// In memory that no file backs, or in a file of which nothing is known.
    Anonymous { address: u64 },
}

/// What a frame executes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum CodeOrigin {
    Native,
    Rust,
    Go,
    Kernel,
    /// Made while the process ran.
    Jit(Runtime),
}

/// Which names are wanted.
#[derive(Clone, Default, Debug)]
pub(crate) struct NamingOptions {
    /// Names of functions in files.
    pub(crate) native: bool,
    /// Names of functions in the kernel.
    pub(crate) kernel: bool,
    /// Source files and lines.
    pub(crate) lines: bool,
    /// Inlined calls.
    pub(crate) inlines: bool,
    /// For symbol tables, names, and what is known of debug information.
    pub(crate) budget_bytes: usize,
    /// Whether names may take as long as they take.
    pub(crate) has_no_time_limit: bool,
    /// Where debug files may be.
    pub(crate) debug_roots: Arc<DebugRoots>,
    /// Asks the kernel for its names. Without, they are read from its list.
    pub(crate) opener: Option<Opener>,
}

/// How frames were named, counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct NameCounts {
    /// In files.
    pub(crate) symbols: SymbolizerStats,
    /// Functions that processes made while they ran and that had no room, or no legible entry.
    pub(crate) jit: u64,
    /// Files that processes named and that were not read.
    pub(crate) files: RefusedFiles,
}

impl NameCounts {
    /// Look-ups for whose symbols there was no room, symbols that tables had none for, and functions that processes made.
    pub(crate) fn omitted(&self) -> u64 {
        self.symbols.no_room + self.symbols.symbols_cut + self.jit
    }

    /// Files of which there was no room for lines and inlined calls, and look-ups for which there was no time.
    pub(crate) fn omitted_lines(&self) -> u64 {
        self.symbols.files_without_lines + self.symbols.lines_left_out
    }
}

impl AddAssign for NameCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { symbols, jit, files } = more;
        self.symbols += symbols;
        self.jit += jit;
        self.files += files;
    }
}

/// Of the room for names, the part that is for code which processes made while they ran.
const JIT_SHARE: usize = 4;

/// Gives names to frames of files that it was told of.
#[derive(Debug)]
pub(crate) struct Namer {
    options: NamingOptions,
    files: HashMap<FileId, Arc<FileInfo>>,
    symbols: Symbolizer,
    jit: JitNames,
    kernel: KernelNameCache,
    no_functions: Arc<[CodeFrame]>,
    empty_name: Arc<str>,
}

/// What the reporter knows of the messages before, by which a window names events.
pub(crate) struct NamingContext<'a> {
    pub(crate) namer: &'a mut Namer,
    pub(crate) processes: &'a HashMap<ProcessKey, Arc<ProcessDescription>>,
}

impl Namer {
    pub(crate) fn new(options: NamingOptions) -> Self {
        Self {
            symbols: Symbolizer::new(SymbolizerOptions {
                budget_bytes: options.budget_bytes - options.budget_bytes / JIT_SHARE,
                lines: options.lines,
                inlines: options.inlines,
                has_no_time_limit: options.has_no_time_limit,
            }),
            jit: JitNames::new(options.budget_bytes / JIT_SHARE, Arc::clone(options.debug_roots.refusals())),
            kernel: KernelNameCache::new(options.opener.clone()),
            options,
            files: HashMap::new(),
            no_functions: Arc::from([]),
            empty_name: Arc::from(""),
        }
    }

    /// Learns of a file, or more of it.
    pub(crate) fn add_file(&mut self, id: FileId, facts: Arc<FileInfo>) {
        // A name may have been sought in vain while the file's headers were not known.
        self.symbols.forget(sidewinder_symbolize::BinaryId(id.0));
        self.files.insert(id, facts);
    }

    /// Forgets a file, which closes it.
    pub(crate) fn remove_file(&mut self, id: FileId) {
        self.symbols.forget(sidewinder_symbolize::BinaryId(id.0));
        self.files.remove(&id);
    }

    /// Reads no more files, nor what runtimes write: frames are named from what has been read so far.
    pub(crate) fn stop_reading(&mut self) {
        self.symbols.stop_reading();
        self.jit.stop_reading();
    }

    /// What has been counted so far.
    pub(crate) fn counts(&self) -> NameCounts {
        NameCounts {
            symbols: self.symbols.stats(),
            jit: self.jit.omitted(),
            files: self.options.debug_roots.refusals().counts(),
        }
    }

    /// Learns where a process's runtime names its code.
    pub(crate) fn add_jit_source(&mut self, process: ProcessKey, place: Arc<JitSource>) {
        self.jit.add_process(process, place);
    }

    /// Forgets a process.
    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        self.jit.remove_process(process);
    }

    /// All that is known of a frame of a process that was there at a time of `CLOCK_MONOTONIC`.
    pub(crate) fn resolve(&mut self, process: ProcessKey, frame: RawFrame, at_ns: u64) -> NamedFrame {
        let address = code_address(frame).address_for_lookup().0;
        let named = match frame.kind() {
            Some(RawFrameKind::Native { file }) => self.resolve_native(FileId(file), code_address(frame)),
            Some(RawFrameKind::Kernel) => self.resolve_kernel(address),
            Some(RawFrameKind::Anonymous) | None => self.resolve_anonymous(process, address, at_ns),
        };
        NamedFrame { is_guessed: frame.is_unproven(), ..named }
    }

    fn resolve_native(&mut self, id: FileId, at: CodeAddress<FileOffset>) -> NamedFrame {
        let offset = at.address_for_lookup();
        let Some(facts) = self.files.get(&id).cloned() else {
            return self.unknown_frame(unnamed_frame("[unknown file]", offset), offset.0);
        };
        let found = facts.loads.iter().find_map(|load| Some((*load, load.svma_of(offset)?)));
        let Some((load, svma)) = found else {
            return self.unknown_frame(unnamed_frame(facts.name(), offset), offset.0);
        };
        let lookup = self.lookup(id, &facts, svma);
        let is_unsought = matches!(lookup, Lookup::Unnamed { why: UnnamedReason::NoRoom, .. });
        let (functions, name, language) = match lookup {
            Lookup::Named(functions) => {
                // Inlined calls are code of the function that they were inlined into.
                let language = functions.last().map_or(Language::Unknown, |function| function.name.language);
                (functions, Arc::clone(&self.empty_name), language)
            }
            Lookup::Unnamed { language, .. } => {
                (Arc::clone(&self.no_functions), Arc::from(unnamed_frame(facts.name(), offset)), language)
            }
        };
        let code = match language {
            Language::Rust => CodeOrigin::Rust,
            Language::Go => CodeOrigin::Go,
            Language::Cpp | Language::Unknown => CodeOrigin::Native,
        };
        let place = FrameLocation::File { id, facts, svma, load };
        NamedFrame {
            location: place,
            functions,
            name,
            origin: code,
            is_provisional: is_unsought,
            is_guessed: false,
        }
    }

    fn lookup(&mut self, id: FileId, facts: &FileInfo, svma: Svma) -> Lookup {
        if !self.options.native {
            return Lookup::Unnamed { why: UnnamedReason::NoSymbols, language: Language::Unknown };
        }
        let files = SymbolSources { facts, roots: &self.options.debug_roots };
        self.symbols.name(sidewinder_symbolize::BinaryId(id.0), files, svma)
    }

    fn resolve_kernel(&mut self, address: u64) -> NamedFrame {
        let name =
            if self.options.kernel { self.kernel.lookup(Avma(address)) } else { KernelName::UNNAMED.into() };
        NamedFrame {
            location: FrameLocation::Kernel { address },
            functions: Arc::clone(&self.no_functions),
            name,
            origin: CodeOrigin::Kernel,
            is_provisional: false,
            is_guessed: false,
        }
    }

    fn resolve_anonymous(&mut self, process: ProcessKey, address: u64, ran_at_ns: u64) -> NamedFrame {
        let found =
            if self.options.native { self.jit.lookup(process, address, ran_at_ns) } else { JitName::Unnamed };
        match found {
            JitName::Unnamed | JitName::NotYetRead => NamedFrame {
                is_provisional: matches!(found, JitName::NotYetRead),
                ..self.unknown_frame(format!("[anonymous]+{address:#x}"), address)
            },
            JitName::Named(name, runtime) => {
                let name = SymbolName::from_symbol(name);
                NamedFrame {
                    location: FrameLocation::Anonymous { address },
                    functions: Arc::from([CodeFrame { name, path: None, line: 0, column: 0 }]),
                    name: Arc::clone(&self.empty_name),
                    origin: CodeOrigin::Jit(runtime),
                    is_provisional: false,
                    is_guessed: false,
                }
            }
        }
    }

    fn unknown_frame(&self, name: String, address: u64) -> NamedFrame {
        NamedFrame {
            location: FrameLocation::Anonymous { address },
            functions: Arc::clone(&self.no_functions),
            name: Arc::from(name),
            origin: CodeOrigin::Native,
            is_provisional: false,
            is_guessed: false,
        }
    }
}

fn code_address(frame: RawFrame) -> CodeAddress<FileOffset> {
    let address = FileOffset(frame.address());
    if frame.is_return_address() {
        CodeAddress::ReturnAddress(address)
    } else {
        CodeAddress::InstructionPointer(address)
    }
}

/// What tells the names of a file: itself, and its debug files.
struct SymbolSources<'a> {
    facts: &'a FileInfo,
    roots: &'a DebugRoots,
}

impl BinaryFiles for SymbolSources<'_> {
    fn content(&self) -> std::io::Result<Image> {
        self.facts.content.as_ref().map_or(Err(std::io::ErrorKind::NotFound.into()), open_image)
    }

    fn debug_file(&self) -> Option<Image> {
        Some(Image::from(Arc::clone(&self.facts.companions.debug.as_ref()?.file)))
    }

    fn alternate(&self) -> Option<Image> {
        Some(Image::from(Arc::clone(self.facts.companions.debug.as_ref()?.alternate.as_ref()?)))
    }

    fn package(&self) -> Option<Image> {
        self.split_unit(format!("{}.dwp", self.facts.path).as_bytes())
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        self.facts.companions.open_split(path, self.roots).map(Image::from)
    }
}

fn open_image(content: &OpenedFile) -> std::io::Result<Image> {
    match content.file() {
        Some(file) => Ok(Image::from(Arc::clone(file))),
        None => {
            let mut bytes = vec![0; usize::try_from(content.size_bytes()).unwrap_or(0)];
            content.read_exact_at(&mut bytes, 0)?;
            Ok(Image::from(bytes))
        }
    }
}

/// The outermost frame of a stack that isn't complete, as OTLP has it: `[truncated: no_rule]`.
pub(crate) fn truncation_marker(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Complete => None,
        cut if cut.is_loss() => Some(format!("[truncated: {}]", cut.label())),
        other => Some(format!("[{}]", other.label())),
    }
}

/// The same for a sample whose stack never arrived.
pub(crate) const STACK_MISSING: &str = "stack_body_missing";
/// That in a few words, for people.
pub(crate) const STACK_MISSING_SUMMARY: &str = "stack not received";

/// A [`truncation_marker`] as people are shown it: `[truncated: no unwind information]`. `None` for what is not one of this version.
pub(crate) fn marker_summary(marker: &str) -> Option<String> {
    map_marker_reason(marker, |text| {
        marker_reasons().find(|(label, _)| *label == text).map(|(_, summary)| summary)
    })
}

/// The [`truncation_marker`] that people are shown like that.
pub(crate) fn marker_of_summary(summary: &str) -> Option<String> {
    map_marker_reason(summary, |text| {
        marker_reasons().find(|(_, summary)| *summary == text).map(|(label, _)| label)
    })
}

/// Reasons of markers: their labels in OTLP, and in a few words.
fn marker_reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_outcomes = Outcome::ALL.iter().map(|outcome| (outcome.label(), outcome.summary()));
    of_outcomes.chain([(STACK_MISSING, STACK_MISSING_SUMMARY)])
}

fn map_marker_reason(marker: &str, rename: impl Fn(&str) -> Option<&'static str>) -> Option<String> {
    let text = marker.strip_prefix('[')?.strip_suffix(']')?;
    Some(match text.strip_prefix("truncated: ") {
        Some(reason) => format!("[truncated: {}]", rename(reason)?),
        None => format!("[{}]", rename(text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_has_words_for_people_from_which_it_is_found_again() {
        for outcome in Outcome::ALL.iter().filter(|outcome| **outcome != Outcome::Complete) {
            let marker = truncation_marker(*outcome).unwrap();
            let summary = marker_summary(&marker).unwrap();
            assert!(!summary.contains('_'), "{summary}");
            assert_eq!(marker_of_summary(&summary), Some(marker));
        }
        let shown = marker_summary("[truncated: no_rule]");
        assert_eq!(shown.as_deref(), Some("[truncated: no unwind information]"));
        assert_eq!(marker_summary("[truncated: of_another_version]"), None);
        assert_eq!(marker_summary("main"), None);
    }
}
