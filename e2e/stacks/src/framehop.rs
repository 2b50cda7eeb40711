//! What framehop makes of a stack, over the registers and the memory of a stopped thread.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::aarch64::{CacheAarch64, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::elf::PF_X;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, SegmentFlags};

use super::gdb::Look;
use super::space::{Mapping, Space};

/// As many frames as the profiler has at the most.
const FRAMES_MAX: usize = 8192;

type Bytes = Arc<[u8]>;

/// The sections that framehop asks for, by their stated addresses.
#[derive(Clone, Debug, Default)]
struct Sections {
    /// File offsets and stated addresses of the code that is loaded.
    code: Vec<(Range<u64>, u64)>,
    text: Option<(Range<u64>, Bytes)>,
    eh_frame: Option<(Range<u64>, Bytes)>,
    eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    got: Option<Range<u64>>,
    debug_frame: Option<Bytes>,
}

/// framehop, and the files that it has read.
#[derive(Debug, Default)]
pub(crate) struct Framehop {
    files: HashMap<Arc<str>, Option<Sections>>,
    /// Files that are read instead of others.
    instead: HashMap<Arc<str>, PathBuf>,
}

impl Framehop {
    pub(crate) fn reading(instead: HashMap<Arc<str>, PathBuf>) -> Self {
        Self { files: HashMap::new(), instead }
    }

    /// The addresses where frames go on, leaf first.
    pub(crate) fn frames(&mut self, look: &Look, space: &Space) -> Vec<u64> {
        let unwinder: UnwinderX86_64<Bytes> = UnwinderX86_64::new();
        let registers = UnwindRegsX86_64::new(look.pc, look.sp, look.fp);
        self.frames_by(unwinder, &mut CacheX86_64::<_>::new(), registers, look.pc, space)
    }

    /// The same of a thread of arm64 whose return addresses are not signed.
    pub(crate) fn frames_of_arm64(&mut self, look: &Look, link: u64, space: &Space) -> Vec<u64> {
        let unwinder: UnwinderAarch64<Bytes> = UnwinderAarch64::new();
        let registers = UnwindRegsAarch64::new(link, look.sp, look.fp);
        self.frames_by(unwinder, &mut CacheAarch64::<_>::new(), registers, look.pc, space)
    }

    fn frames_by<U: Unwinder<Module = Module<Bytes>>>(
        &mut self,
        mut unwinder: U,
        cache: &mut U::Cache,
        registers: U::UnwindRegs,
        pc: u64,
        space: &Space,
    ) -> Vec<u64> {
        for mapping in space.code() {
            if let Some(module) = self.module(mapping, space) {
                unwinder.add_module(module);
            }
        }
        let mut read_stack = |address| space.word(address).ok_or(());
        let mut iterator = unwinder.iter_frames(pc, registers, cache, &mut read_stack);
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = iterator.next() {
            frames.push(frame.address());
            if frames.len() == FRAMES_MAX {
                break;
            }
        }
        frames
    }

    fn module(&mut self, mapping: &Mapping, space: &Space) -> Option<Module<Bytes>> {
        let instead = &self.instead;
        let sections = self.files.entry(Arc::clone(&mapping.path)).or_insert_with(|| {
            if &*mapping.path == "[vdso]" {
                let length = usize::try_from(mapping.end - mapping.start).ok()?;
                return sections(&space.bytes(mapping.start, length)?);
            }
            let path = instead.get(&mapping.path).map_or(Path::new(&*mapping.path), PathBuf::as_path);
            sections(&fs::read(path).ok()?)
        });
        let sections = sections.clone()?;
        // Mappings begin with the page that their segment begins in.
        let mapped = mapping.file_offset..mapping.file_offset + (mapping.end - mapping.start);
        let (code, svma) =
            sections.code.iter().find(|(code, _)| code.start < mapped.end && mapped.start < code.end)?;
        let base_avma =
            mapping.start.wrapping_add(code.start.wrapping_sub(mapping.file_offset)).wrapping_sub(*svma);
        let (text_svma, text) = sections.text.unzip();
        let (eh_frame_svma, eh_frame) = sections.eh_frame.unzip();
        let (eh_frame_hdr_svma, eh_frame_hdr) = sections.eh_frame_hdr.unzip();
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma,
            text,
            got_svma: sections.got,
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            debug_frame: sections.debug_frame,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(mapping.path.to_string(), mapping.start..mapping.end, base_avma, info))
    }
}

fn sections(bytes: &[u8]) -> Option<Sections> {
    let file = object::File::parse(bytes).ok()?;
    let range = |name| file.section_by_name(name).map(|s| s.address()..s.address() + s.size());
    let data = |name| file.section_by_name(name).and_then(|s| Some(Bytes::from(s.data().ok()?)));
    let both = |name| range(name).zip(data(name));
    Some(Sections {
        code: code_segments(&file).collect(),
        text: both(".text"),
        eh_frame: both(".eh_frame"),
        eh_frame_hdr: both(".eh_frame_hdr"),
        got: range(".got"),
        debug_frame: data(".debug_frame"),
    })
}

/// The file offsets and stated addresses of a file's code.
pub(crate) fn code_segments<'file>(
    file: &'file object::File<'_>,
) -> impl Iterator<Item = (Range<u64>, u64)> + 'file {
    let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
    file.segments().filter(move |segment| is_code(segment.flags())).map(|segment| {
        let (offset, size) = segment.file_range();
        (offset..offset + size, segment.address())
    })
}
