//! Names of frames: functions and source lines from symbols and debug information, from the kernel, and from JIT runtimes.
//!
//! Owner: the thread of the reporter or command that has the [`NamingStage`]. Input: messages from sampling, and frames. Output:
//! [updates](Update) for those that count events, and [`NamedFrame`]s.

mod downloads;
mod frame;
mod location;
mod lock_names;
mod marker;
mod sources;
mod stacks;
mod stage;

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;
use std::sync::Arc;

use sidewinder_address::{Avma, CodeAddress, FileOffset, LoadSegment, Svma};
use sidewinder_base::refusals::RefusedFiles;
use sidewinder_bpf::{CodeObject, Opener, RawFrame, RawFrameKind, VmFunction, VmMissing, WalkedRuntime};
use sidewinder_debug_files::DebugRoots;
use sidewinder_message::{FileInfo, JitSource, RuntimeSource, Stack, file_location};
use sidewinder_process::{FileId, ProcessDescription, ProcessKey};
use sidewinder_symbolize::{
    CodeFrame, KernelName, Language, Lookup, SymbolName, Symbolizer, SymbolizerOptions, SymbolizerStats,
    UnnamedReason, unnamed_frame,
};
use sidewinder_vm::{Code, Function, RuntimeSet, describe_walked};

use self::downloads::Downloads;
pub(crate) use self::frame::CodeOrigin;
pub use self::frame::{FrameLocation, NamedFrame, UnnamedCause};
pub use self::marker::{
    STACK_MISSING, STACK_MISSING_SUMMARY, truncation_with_reason, truncation_with_summary,
};
pub(crate) use self::marker::{missing_stack, truncation};
use self::sources::SymbolSources;
pub use self::stacks::{StackNames, WalkedStack};
pub use self::stage::{Forgotten, NamingStage, RenamedFrames, Update};
use crate::containers::ContainerDirectory;
use crate::jit::{JitName, JitNames};
use crate::kernel_names::KernelNameCache;
use crate::source_maps::{SourceMapCounts, SourceMapStore};
use crate::vm::{VmNameCounts, VmNames};

/// Which names to look up, and the limits of the look-up.
#[derive(Clone, Default, Debug)]
pub struct NamingOptions {
    /// Names of functions in files, and of generated code.
    pub native: bool,
    /// Names of functions in the kernel.
    pub kernel: bool,
    /// Source files and lines.
    pub lines: bool,
    /// Inlined calls.
    pub inlines: bool,
    /// Whether to omit the native frames of virtual machines' loops, whose own frames are in the stack.
    pub hides_vm_internals: bool,
    /// The runtimes whose functions walks look for.
    pub runtimes: RuntimeSet,
    /// Whether JavaScript functions are mapped to their scripts' sources by source maps.
    pub source_maps: bool,
    /// The memory for symbol tables, names, and indexes of debug information.
    pub budget_bytes: usize,
    /// Whether look-ups may take unlimited time.
    pub has_no_time_limit: bool,
    /// Where debug files may be.
    pub debug_roots: Arc<DebugRoots>,
    /// Queries the kernel for its names. `None`: they are read from `/proc/kallsyms`.
    pub opener: Option<Opener>,
}

/// The counters of naming.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NameCounts {
    /// In files.
    pub symbols: SymbolizerStats,
    /// Generated functions that were omitted because of the memory budget or the time limit, or because their entry is
    /// invalid.
    pub jit_names_left_out: u64,
    /// Functions of virtual machines.
    pub vm_functions: VmNameCounts,
    /// Scripts whose source maps were looked for.
    pub source_maps: SourceMapCounts,
    /// Files that processes name and that were refused.
    pub files_refused: RefusedFiles,
}

impl NameCounts {
    /// Look-ups whose symbols didn't fit the memory, symbols that were cut from tables, and omitted generated functions.
    pub fn names_left_out(&self) -> u64 {
        self.symbols.name_lookups.no_room + self.symbols.symbols_left_out + self.jit_names_left_out
    }

    /// Files whose lines and inlined calls didn't fit the memory, and look-ups without lines because time ran out.
    pub fn lines_left_out(&self) -> u64 {
        self.symbols.files_without_lines + self.symbols.line_lookups_left_out
    }
}

impl AddAssign for NameCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { symbols, jit_names_left_out, vm_functions, source_maps, files_refused } = other;
        self.symbols += symbols;
        self.jit_names_left_out += jit_names_left_out;
        self.vm_functions += vm_functions;
        self.source_maps += source_maps;
        self.files_refused += files_refused;
    }
}

/// The share of the memory for names that is for generated code, as a divisor.
const JIT_SHARE: usize = 8;
/// The share of the memory for names that is for source maps, if they are used, as a divisor.
const SOURCE_MAP_SHARE: usize = 4;

/// The part of `names_bytes` that is for functions of virtual machines, which take `held_bytes` now: twice that, between an eighth
/// and a half, in steps of a sixteenth. Where no process has a virtual machine, a sixteenth is for what the stacks of young processes
/// bring with them.
fn vm_budget_bytes(names_bytes: usize, held_bytes: usize, has_processes: bool) -> usize {
    let step = (names_bytes / 16).max(1);
    let least = if has_processes { 2 * step } else { step };
    (2 * held_bytes).next_multiple_of(step).clamp(least, 8 * step).min(names_bytes)
}

/// Names the frames of the files and processes that were added to it.
#[derive(Debug)]
pub struct Namer {
    options: NamingOptions,
    files: HashMap<FileId, Arc<FileInfo>>,
    /// Those of them that exist only in memory.
    memory_files: HashSet<FileId>,
    /// The memory for the symbols of files and the functions of virtual machines together.
    divided_bytes: usize,
    symbols: Symbolizer,
    jit: JitNames,
    vm: VmNames,
    kernel: KernelNameCache,
    downloads: Downloads,
    containers: ContainerDirectory,
    no_functions: Arc<[CodeFrame]>,
    empty_name: Arc<str>,
}

impl Namer {
    /// Reads nothing until there is something to name.
    pub fn new(options: NamingOptions) -> Self {
        let map_bytes = if options.source_maps { options.budget_bytes / SOURCE_MAP_SHARE } else { 0 };
        let refusals = options.debug_roots.refusals();
        let source_maps =
            options.source_maps.then(|| Arc::new(SourceMapStore::new(map_bytes, Arc::clone(refusals))));
        let jit_bytes = options.budget_bytes / JIT_SHARE;
        let divided_bytes = options.budget_bytes - jit_bytes - map_bytes;
        let vm_bytes = vm_budget_bytes(divided_bytes, 0, false);
        Self {
            divided_bytes,
            symbols: Symbolizer::new(SymbolizerOptions {
                budget_bytes: divided_bytes - vm_bytes,
                lines: options.lines,
                inlines: options.inlines,
                has_no_time_limit: options.has_no_time_limit,
            }),
            jit: JitNames::new(jit_bytes, Arc::clone(refusals)),
            vm: VmNames::new(vm_bytes, options.has_no_time_limit, source_maps),
            kernel: KernelNameCache::new(options.opener.clone()),
            downloads: Downloads::default(),
            containers: ContainerDirectory::new(options.has_no_time_limit),
            options,
            files: HashMap::new(),
            memory_files: HashSet::new(),
            no_functions: Arc::from([]),
            empty_name: Arc::from(""),
        }
    }

    /// Divides the memory between the symbols of files and the functions of virtual machines by what the latter take now.
    pub fn divide_memory(&mut self) {
        let vm_bytes = vm_budget_bytes(self.divided_bytes, self.vm.held_bytes(), self.vm.has_processes());
        let symbols_bytes = self.divided_bytes - vm_bytes;
        if symbols_bytes != self.symbols.budget_bytes() {
            self.symbols.set_budget_bytes(symbols_bytes);
            self.vm.set_budget(vm_bytes);
        }
    }

    /// A description with the names of the process's container.
    pub fn describe(&mut self, description: Arc<ProcessDescription>) -> Arc<ProcessDescription> {
        self.containers.describe(description)
    }

    /// Adds a file, or replaces it after its headers were read.
    pub fn add_file(&mut self, id: FileId, info: Arc<FileInfo>) {
        // A look-up may have failed while the file's headers were unknown.
        self.symbols.forget(sidewinder_symbolize::BinaryId(id.0));
        self.downloads.forget(id);
        if info.is_memory_file() {
            self.memory_files.insert(id);
        }
        self.files.insert(id, info);
    }

    /// Removes a file, and closes it.
    pub fn remove_file(&mut self, id: FileId) {
        self.symbols.forget(sidewinder_symbolize::BinaryId(id.0));
        self.downloads.forget(id);
        self.memory_files.remove(&id);
        self.files.remove(&id);
    }

    /// Asks servers for the debug files of the files in a stack, unless it has.
    pub fn request_debug_files(&mut self, stack: &Stack) {
        let Some(servers) = self.options.debug_roots.debuginfod() else { return };
        for (id, _) in stack.frames.iter().filter_map(file_location) {
            if let Some(info) = self.files.get(&id) {
                self.downloads.get(Some(servers), id, info);
            }
        }
    }

    /// From now on, names wait for the debug files of servers.
    pub fn wait_for_debug_files(&mut self) {
        self.downloads.start_waiting();
    }

    /// Stops reading files and the output of runtimes. Frames are named from what has been read so far.
    pub fn stop_reading(&mut self) {
        self.symbols.stop_reading();
        self.jit.stop_reading();
        self.vm.stop_reading();
    }

    /// The counters so far.
    pub fn counts(&self) -> NameCounts {
        NameCounts {
            symbols: self.symbols.stats(),
            jit_names_left_out: self.jit.omitted(),
            vm_functions: self.vm.counts(),
            source_maps: self.vm.source_map_counts(),
            files_refused: self.options.debug_roots.refusals().counts(),
        }
    }

    /// Adds the JIT source of a process.
    pub fn add_jit_source(&mut self, process: ProcessKey, source: Arc<JitSource>) {
        self.jit.add_process(process, source);
    }

    /// Adds a runtime of a process.
    pub fn add_runtime(&mut self, process: ProcessKey, source: Arc<RuntimeSource>) {
        self.vm.add_process(process, source);
        self.divide_memory();
    }

    /// Adds a function that a process has sent. Returns whether stacks may have been named without it.
    pub(crate) fn add_code_object(&mut self, process: ProcessKey, object: &CodeObject) -> bool {
        self.vm.add_copy(process, object)
    }

    /// Reads the functions of virtual machines in a stack, while the process has them.
    pub fn read_functions(&mut self, process: ProcessKey, stack: &Stack) {
        if stack.has_vm_frames {
            self.vm.read_stack(process, stack.id, &stack.frames);
        }
    }

    /// The same for several stacks of a process.
    fn read_functions_in(&mut self, process: ProcessKey, stacks: &[&Stack]) {
        self.vm.read_stacks(process, stacks.iter().map(|stack| (stack.id, &*stack.frames)));
    }

    /// Whether a file exists only in memory.
    pub fn is_memory_file(&self, file: FileId) -> bool {
        self.memory_files.contains(&file)
    }

    /// Why frames of a walked stack have no name; `None` if all have one. For code that the process has generated, this reads
    /// the process's files, unless reading has been stopped.
    pub fn unnamed_cause(
        &mut self,
        process: ProcessKey,
        frames: &[RawFrame],
        at_ns: u64,
    ) -> Option<UnnamedCause> {
        let is_of_known_vm = |frame: &RawFrame| match frame.kind() {
            Some(RawFrameKind::Missing { reason, .. }) => reason != VmMissing::TooEarly,
            kind => matches!(kind, Some(RawFrameKind::Vm(_))),
        };
        let has_functions = frames.iter().any(is_of_known_vm);
        frames.iter().find_map(|frame| match frame.kind()? {
            RawFrameKind::Anonymous if self.options.native => {
                let address = code_address(*frame).address_for_lookup().0;
                let is_named = matches!(self.jit.lookup(process, address, at_ns), JitName::Named(..));
                (!is_named).then(|| self.unnamed_code(process, has_functions))
            }
            RawFrameKind::Native { file } => {
                self.is_memory_file(FileId(file)).then(|| self.unnamed_code(process, has_functions))
            }
            RawFrameKind::Vm(function) => match self.vm.lookup(process, function) {
                Some(_) => None,
                None => self.vm.obstacle(process).map(UnnamedCause::Memory),
            },
            RawFrameKind::Kernel | RawFrameKind::Anonymous | RawFrameKind::Missing { .. } => None,
        })
    }

    /// `has_functions`: the stack has functions of a virtual machine, so its files had been read.
    fn unnamed_code(&self, process: ProcessKey, has_functions: bool) -> UnnamedCause {
        let Some((generator, has_names)) = self.jit.generator(process) else {
            return UnnamedCause::UnknownCode;
        };
        match generator {
            Some(runtime)
                if !has_functions && self.options.runtimes.has(runtime) && self.jit.is_walked(process) =>
            {
                UnnamedCause::TooEarly(runtime)
            }
            _ => UnnamedCause::GeneratedCode { generator, has_names },
        }
    }

    /// Removes a process.
    pub fn remove_process(&mut self, process: ProcessKey) {
        self.jit.remove_process(process);
        self.vm.remove_process(process);
    }

    /// Names a frame of a process. `at_ns` is when the code ran, in `CLOCK_MONOTONIC` nanoseconds. `None`: the frame is
    /// omitted, as that of a virtual machine's loop, or of code that it runs for itself.
    pub fn resolve(&mut self, process: ProcessKey, frame: RawFrame, at_ns: u64) -> Option<NamedFrame> {
        if self.options.hides_vm_internals && frame.is_vm_loop() {
            return None;
        }
        let address = code_address(frame).address_for_lookup().0;
        let named = match frame.kind() {
            Some(RawFrameKind::Native { file }) => self.resolve_native(FileId(file), code_address(frame)),
            Some(RawFrameKind::Kernel) => self.resolve_kernel(address),
            Some(RawFrameKind::Vm(function)) => {
                self.resolve_function(process, function, frame.is_return_address())?
            }
            Some(RawFrameKind::Missing { runtime, reason }) => {
                self.vm_frame(runtime, missing_frames(runtime, reason))
            }
            Some(RawFrameKind::Anonymous) | None => self.resolve_anonymous(process, address, at_ns),
        };
        Some(NamedFrame { is_guessed: frame.is_unproven(), ..named })
    }

    /// Names frames in files, file by file in the order of addresses, and passes them to `take`. Frames that reports omit are
    /// skipped.
    pub fn resolve_in_files(
        &mut self,
        frames: impl IntoIterator<Item = RawFrame>,
        mut take: impl FnMut(RawFrame, NamedFrame),
    ) {
        let mut by_file: HashMap<FileId, Vec<(LocatedCode, RawFrame)>> = HashMap::new();
        let is_shown = |frame: &RawFrame| !self.options.hides_vm_internals || !frame.is_vm_loop();
        for frame in frames.into_iter().filter(is_shown) {
            if let Some((id, offset)) = file_location(&frame)
                && let Some(code) = self.files.get(&id).and_then(|info| LocatedCode::find(info, offset))
            {
                by_file.entry(id).or_default().push((code, frame));
            }
        }
        for (id, mut frames) in by_file {
            frames.sort_unstable_by_key(|(code, _)| code.svma);
            let codes: Vec<LocatedCode> = frames.iter().map(|(code, _)| *code).collect();
            self.name_code(id, &codes, |number, named| {
                if let Some((_, frame)) = frames.get(number) {
                    take(*frame, NamedFrame { is_guessed: frame.is_unproven(), ..named });
                }
            });
        }
    }

    fn resolve_native(&mut self, id: FileId, at: CodeAddress<FileOffset>) -> NamedFrame {
        let offset = at.address_for_lookup();
        let Some(info) = self.files.get(&id).cloned() else {
            let unknown = self.unknown_frame(unnamed_frame("[unknown file]", offset), offset.0);
            return NamedFrame { is_marker: true, ..unknown };
        };
        let Some(code) = LocatedCode::find(&info, offset) else {
            return self.unknown_frame(unnamed_frame(info.name(), offset), offset.0);
        };
        let mut found = None;
        self.name_code(id, &[code], |_, named| found = Some(named));
        found.unwrap_or_else(|| self.unknown_frame(unnamed_frame(info.name(), offset), offset.0))
    }

    /// Names code of a file, given in the order of its addresses, and passes the frames to `take`, with their numbers.
    fn name_code(&mut self, id: FileId, codes: &[LocatedCode], mut take: impl FnMut(usize, NamedFrame)) {
        let Some(info) = self.files.get(&id).cloned() else { return };
        let (no_functions, empty_name) = (Arc::clone(&self.no_functions), Arc::clone(&self.empty_name));
        let mut pass = |number: usize, lookup: Lookup, is_pending: bool| {
            let Some(LocatedCode { load, svma, offset }) = codes.get(number).copied() else { return };
            let is_provisional =
                is_pending || matches!(lookup, Lookup::Unnamed { why: UnnamedReason::NoRoom, .. });
            let (functions, name, language) = match lookup {
                Lookup::Named(functions) => {
                    // Inlined calls have the language of the function that they were inlined into.
                    let language =
                        functions.last().map_or(Language::Unknown, |function| function.name.language);
                    (functions, Arc::clone(&empty_name), language)
                }
                Lookup::Unnamed { language, .. } => {
                    (Arc::clone(&no_functions), Arc::from(unnamed_frame(info.name(), offset)), language)
                }
            };
            let origin = match language {
                Language::Rust => CodeOrigin::Rust,
                Language::Go => CodeOrigin::Go,
                Language::Cpp | Language::Unknown => CodeOrigin::Native,
            };
            let location = FrameLocation::File { id, facts: Arc::clone(&info), svma, load };
            // A file has its whole path; `[vdso]` is ours.
            let is_marker = functions.is_empty() && info.path.starts_with('[');
            take(
                number,
                NamedFrame {
                    location,
                    functions,
                    name,
                    is_marker,
                    origin,
                    is_provisional,
                    is_guessed: false,
                },
            );
        };
        if !self.options.native {
            let unnamed = Lookup::Unnamed { why: UnnamedReason::NoSymbols, language: Language::Unknown };
            (0..codes.len()).for_each(|number| pass(number, unnamed.clone(), false));
            return;
        }
        let roots = &*self.options.debug_roots;
        let downloaded = self.downloads.get(roots.debuginfod(), id, &info);
        let binary = sidewinder_symbolize::BinaryId(id.0);
        if downloaded.has_arrived {
            self.symbols.forget(binary);
        }
        let sources = SymbolSources { info: &info, roots, downloaded: downloaded.file.as_deref() };
        let svmas: Vec<Svma> = codes.iter().map(|code| code.svma).collect();
        // A debug file that is pending may know more.
        let is_pending = downloaded.is_pending;
        self.symbols.name_all(binary, sources, &svmas, |number, lookup| pass(number, lookup, is_pending));
    }

    fn resolve_kernel(&mut self, address: u64) -> NamedFrame {
        let name =
            if self.options.kernel { self.kernel.lookup(Avma(address)) } else { KernelName::UNNAMED.into() };
        NamedFrame {
            location: FrameLocation::Kernel { address },
            functions: Arc::clone(&self.no_functions),
            is_marker: &*name == KernelName::UNNAMED,
            name,
            origin: CodeOrigin::Kernel,
            is_provisional: false,
            is_guessed: false,
        }
    }

    fn resolve_anonymous(&mut self, process: ProcessKey, address: u64, ran_at_ns: u64) -> NamedFrame {
        let jit_name =
            if self.options.native { self.jit.lookup(process, address, ran_at_ns) } else { JitName::Unnamed };
        match jit_name {
            JitName::Unnamed | JitName::NotYetRead => NamedFrame {
                is_provisional: matches!(jit_name, JitName::NotYetRead),
                is_marker: true,
                ..self.unknown_frame(format!("[anonymous]+{address:#x}"), address)
            },
            JitName::Named(name, runtime) => {
                let name = SymbolName::from_symbol(name);
                NamedFrame {
                    location: FrameLocation::Anonymous { address },
                    functions: Arc::from([CodeFrame { name, path: None, line: 0, column: 0 }]),
                    name: Arc::clone(&self.empty_name),
                    is_marker: false,
                    origin: CodeOrigin::Jit(runtime),
                    is_provisional: false,
                    is_guessed: false,
                }
            }
        }
    }

    /// `None` if the function is omitted, as one of the runtime's own if these are. Names are looked up whatever the mode: no
    /// backend has the symbols of these functions.
    fn resolve_function(
        &mut self,
        process: ProcessKey,
        wanted: VmFunction,
        is_caller: bool,
    ) -> Option<NamedFrame> {
        let Some(known) = self.vm.lookup(process, wanted) else {
            let is_provisional = self.vm.is_pending(process, wanted);
            let name = describe_walked(wanted.runtime).unknown_function(wanted.form);
            return Some(NamedFrame { is_provisional, ..self.vm_frame(wanted.runtime, name) });
        };
        let lines = self.options.lines;
        let code_frame = |function: &Function, line: u32| CodeFrame {
            name: SymbolName::unmangled(Arc::from(function.name())),
            path: lines.then(|| function.to_shared_path()),
            line: if lines { line } else { 0 },
            column: 0,
        };
        let mut is_marker = false;
        let functions: Arc<[CodeFrame]> = match known {
            Code::Function(function) => {
                is_marker = function.is_marker();
                // What has a name of ours is shown where it was interrupted.
                let is_hidden = function.is_internal() && (is_caller || !is_marker);
                if is_hidden && self.options.hides_vm_internals {
                    return None;
                }
                let line = function.line_at(wanted.place.cast_unsigned()).unwrap_or(function.first_line);
                Arc::from([code_frame(function, line)])
            }
            Code::Compiled(calls) => {
                let shown = if self.options.inlines { 0 } else { calls.len().saturating_sub(1) };
                calls.iter().skip(shown).map(|call| code_frame(&call.function, call.line)).collect()
            }
        };
        Some(NamedFrame { functions, is_marker, ..self.vm_frame(wanted.runtime, String::new()) })
    }

    /// A frame of a virtual machine that has no function, with words of ours in its place.
    fn vm_frame(&self, runtime: WalkedRuntime, name: String) -> NamedFrame {
        NamedFrame {
            location: FrameLocation::Vm,
            origin: CodeOrigin::Interpreted(runtime.into()),
            is_marker: true,
            ..self.unknown_frame(name, 0)
        }
    }

    fn unknown_frame(&self, name: String, address: u64) -> NamedFrame {
        NamedFrame {
            location: FrameLocation::Anonymous { address },
            functions: Arc::clone(&self.no_functions),
            is_marker: false,
            name: Arc::from(name),
            origin: CodeOrigin::Native,
            is_provisional: false,
            is_guessed: false,
        }
    }
}

/// Code of a file: its segment, and its address as stated in the file.
#[derive(Clone, Copy, Debug)]
struct LocatedCode {
    load: LoadSegment,
    svma: Svma,
    offset: FileOffset,
}

impl LocatedCode {
    fn find(info: &FileInfo, offset: FileOffset) -> Option<Self> {
        info.loads.iter().find_map(|load| Some(Self { load: *load, svma: load.svma_of(offset)?, offset }))
    }
}

/// The name of the frame that stands for missing ones.
fn missing_frames(runtime: WalkedRuntime, reason: VmMissing) -> String {
    let language = describe_walked(runtime).language;
    match reason {
        VmMissing::TooEarly => format!("[{language} not detected yet]"),
        reason => format!("[{language} frames missing: {}]", reason.label()),
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

#[cfg(test)]
mod tests {
    use super::vm_budget_bytes;

    #[test]
    fn functions_of_virtual_machines_get_twice_what_they_take_within_bounds() {
        let budget = |held_bytes, has_processes| vm_budget_bytes(1600, held_bytes, has_processes);
        assert_eq!([budget(0, false), budget(0, true), budget(90, true)], [100, 200, 200]);
        assert_eq!([budget(101, true), budget(350, true), budget(1600, true)], [300, 700, 800]);
        assert_eq!(vm_budget_bytes(0, 7, true), 0, "there is nothing to divide");
    }
}
