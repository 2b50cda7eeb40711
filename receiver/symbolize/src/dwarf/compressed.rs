//! Compressed sections, decompressed piece by piece.
//!
//! Decompressed as a whole, the debug information of a common library takes several times the memory available for it.
//! So a section is decompressed up to the page that is wanted, and what comes before it is discarded. Sequential reads
//! continue from there. To go back, decompressor states are kept at some positions (checkpoints): decompression
//! restarts at the last one before the page.
//!
//! Source: System V ABI, "Section Compression"; RFC 1950 (zlib); RFC 8878 (Zstandard).

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use gimli::{Error, Result};
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};
use object::elf::{ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::pages::{PAGE_BYTES, PageCache};
use crate::image::Image;

/// `Elf64_Chdr`.
const HEADER_BYTES: u64 = 24;
/// The state of zlib's decompressor, most of which is the 32 KiB window.
const STATE_BYTES: u64 = size_of::<InflateState>() as u64;
/// The memory of Zstandard's decompressor in addition to its window: tables, and two blocks.
const ZSTD_BYTES: u64 = 640 << 10;
/// The minimum distance of checkpoints: this much is decompressed within some milliseconds.
const STRIDE_BYTES_MIN: u64 = 256 << 10;
/// Compressed bytes read at once.
const INPUT_BYTES: usize = 4096;
/// The work that an empty Zstandard block counts as.
const BLOCK_WORK_BYTES: u64 = 1024;

/// A compressed section.
pub(crate) struct CompressedSection {
    format: SectionCompression,
    /// The range in the file, after the header.
    packed: Range<u64>,
    /// The decompressed size, as stated in the file.
    pub(super) bytes: u64,
    /// The distance of checkpoints.
    stride_bytes: u64,
    decompressor: RefCell<Option<Decompressor>>,
    /// In ascending order.
    checkpoints: RefCell<Vec<(DecompressorPosition, DecompressorState)>>,
}

#[derive(Clone, Copy)]
enum SectionCompression {
    Zlib,
    /// The window is the data that later bytes may refer to.
    Zstd {
        window_bytes: u64,
    },
}

/// A position of decompression.
#[derive(Clone, Copy)]
struct DecompressorPosition {
    /// In the decompressed data.
    offset: u64,
    /// In the file.
    compressed_offset: u64,
}

/// A state from which decompression can start.
#[derive(Clone)]
enum DecompressorState {
    Zlib(Box<InflateState>),
    /// Nothing before this position is referred to.
    NewFrame,
}

struct Decompressor {
    position: DecompressorPosition,
    decoder: Decoder,
}

enum Decoder {
    Zlib(Box<InflateState>),
    Zstd(Box<FrameDecoder>),
}

impl fmt::Debug for CompressedSection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Packed").field("packed", &self.packed).finish_non_exhaustive()
    }
}

impl CompressedSection {
    /// A section with these bytes in the file; `None` if it doesn't begin with the header of a known format.
    pub(super) fn read(image: &Image, section: Range<u64>) -> Option<Self> {
        let packed =
            section.start.checked_add(HEADER_BYTES).filter(|start| *start <= section.end)?..section.end;
        let mut header = [0; HEADER_BYTES as usize];
        image.read_exact_at(section.start, &mut header).ok()?;
        let [a, b, c, d, _, _, _, _, size @ ..] = header;
        let bytes = size.first_chunk().copied().map(u64::from_le_bytes)?;
        let format = match u32::from_le_bytes([a, b, c, d]) {
            kind if kind == ELFCOMPRESS_ZLIB.0 => SectionCompression::Zlib,
            kind if kind == ELFCOMPRESS_ZSTD.0 => {
                SectionCompression::Zstd { window_bytes: window_bytes(image, packed.start, bytes)? }
            }
            _ => return None,
        };
        let (unpacker, kept) = (RefCell::default(), RefCell::default());
        Some(Self {
            format,
            packed,
            bytes,
            stride_bytes: u64::MAX,
            decompressor: unpacker,
            checkpoints: kept,
        })
    }

    /// Memory used while decompressing, in bytes.
    pub(super) fn working_bytes(&self) -> u64 {
        match self.format {
            SectionCompression::Zlib => STATE_BYTES,
            SectionCompression::Zstd { window_bytes } => {
                window_bytes.checked_next_power_of_two().unwrap_or(u64::MAX).saturating_add(ZSTD_BYTES)
            }
        }
    }

    /// The distance of checkpoints at which those of sections of `total_bytes` take at most `room_bytes`.
    pub(super) fn stride_bytes(total_bytes: u64, room_bytes: u64) -> u64 {
        let stride_bytes = total_bytes.checked_div(room_bytes / STATE_BYTES).unwrap_or(u64::MAX);
        stride_bytes.max(STRIDE_BYTES_MIN).checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
    }

    /// Enables checkpoints from now on. Returns the most memory that they will take, in bytes.
    pub(super) fn set_checkpoint_stride(&mut self, stride_bytes: u64) -> u64 {
        self.stride_bytes = stride_bytes;
        self.bytes / stride_bytes * STATE_BYTES
    }

    /// The whole decompressed section.
    pub(super) fn whole(&self, image: &Image, pages: &PageCache) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.bytes).map_err(|_| Error::Io)?];
        let filled = Decompressor::new(self.start(), DecompressorState::NewFrame, self.format).fill(
            image,
            self.packed.end,
            pages,
            &mut bytes,
        )?;
        if filled < bytes.len() {
            return Err(Error::Io);
        }
        Ok(bytes)
    }

    /// Fills a page of the decompressed section. Returns the number of bytes filled.
    pub(super) fn fill(
        &self,
        image: &Image,
        pages: &PageCache,
        page: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let wanted = page * PAGE_BYTES;
        let mut held = self.decompressor.borrow_mut();
        // A decompressor that has failed is discarded.
        let mut unpacker = self.nearest(held.take(), wanted);
        loop {
            let at = unpacker.position.offset;
            let filled = unpacker.fill(image, self.packed.end, pages, buffer)?;
            if at == wanted {
                self.save_checkpoint(&unpacker);
                *held = Some(unpacker);
                return Ok(filled);
            }
            if filled < buffer.len() {
                return Ok(0);
            }
            self.save_checkpoint(&unpacker);
        }
    }

    fn start(&self) -> DecompressorPosition {
        DecompressorPosition { offset: 0, compressed_offset: self.packed.start }
    }

    /// The decompressor that reaches a position soonest: the current one, or one that restarts from a checkpoint.
    fn nearest(&self, unpacker: Option<Decompressor>, wanted: u64) -> Decompressor {
        let kept = self.checkpoints.borrow();
        let before = kept.partition_point(|(position, _)| position.offset <= wanted);
        let last = before.checked_sub(1).and_then(|index| kept.get(index));
        let since = last.map_or(0, |(position, _)| position.offset);
        match unpacker.filter(|unpacker| (since..=wanted).contains(&unpacker.position.offset)) {
            Some(unpacker) => unpacker,
            None => {
                let (position, state) = last.cloned().unwrap_or((self.start(), DecompressorState::NewFrame));
                Decompressor::new(position, state, self.format)
            }
        }
    }

    /// Adds a checkpoint, if the decompressor is far enough from the last one.
    fn save_checkpoint(&self, unpacker: &Decompressor) {
        let mut kept = self.checkpoints.borrow_mut();
        let last = kept.last().map_or(0, |(position, _)| position.offset);
        if unpacker.position.offset.checked_sub(last).is_some_and(|since| since >= self.stride_bytes) {
            kept.extend(unpacker.state().map(|state| (unpacker.position, state)));
        }
    }
}

impl Decompressor {
    fn new(position: DecompressorPosition, state: DecompressorState, format: SectionCompression) -> Self {
        let decoder = match (state, format) {
            (DecompressorState::Zlib(state), _) => Decoder::Zlib(state),
            (DecompressorState::NewFrame, SectionCompression::Zlib) => {
                Decoder::Zlib(InflateState::new_boxed(DataFormat::ZLibIgnoreChecksum))
            }
            (DecompressorState::NewFrame, SectionCompression::Zstd { window_bytes }) => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(window_bytes);
                Decoder::Zstd(Box::new(decoder))
            }
        };
        Self { position, decoder }
    }

    /// The state to restart from at the current position, if there is a small one.
    fn state(&self) -> Option<DecompressorState> {
        match &self.decoder {
            Decoder::Zlib(state) => Some(DecompressorState::Zlib(state.clone())),
            Decoder::Zstd(decoder) => {
                (decoder.is_finished() && decoder.can_collect() == 0).then_some(DecompressorState::NewFrame)
            }
        }
    }

    /// Decompresses until a buffer is full, or the section ends. Returns the number of bytes filled.
    fn fill(&mut self, image: &Image, end: u64, pages: &PageCache, buffer: &mut [u8]) -> Result<usize> {
        pages.spend(buffer.len() as u64)?;
        let mut input = Input { image, at: self.position.compressed_offset, end };
        let filled = match &mut self.decoder {
            Decoder::Zlib(state) => fill_from_zlib(state, &mut input, pages, buffer)?,
            Decoder::Zstd(decoder) => fill_from_zstd(decoder, &mut input, pages, buffer)?,
        };
        self.position = DecompressorPosition {
            offset: self.position.offset + filled as u64,
            compressed_offset: input.at,
        };
        Ok(filled)
    }
}

fn fill_from_zlib(
    state: &mut InflateState,
    input: &mut Input<'_>,
    pages: &PageCache,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut filled = 0;
    let mut packed = [0; INPUT_BYTES];
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let from = input.at;
        let count = input.read(&mut packed).map_err(|_| Error::Io)?;
        let done = inflate(state, packed.get(..count).unwrap_or_default(), rest, MZFlush::None);
        input.at = from + done.bytes_consumed as u64;
        filled += done.bytes_written;
        pages.spend(done.bytes_consumed as u64)?;
        let has_moved = done.bytes_consumed + done.bytes_written > 0;
        match done.status {
            Ok(MZStatus::Ok) if has_moved => {}
            Ok(MZStatus::StreamEnd) => break,
            _ => return Err(Error::Io),
        }
    }
    Ok(filled)
}

fn fill_from_zstd(
    decoder: &mut FrameDecoder,
    input: &mut Input<'_>,
    pages: &PageCache,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let count = decoder.read(rest).map_err(|_| Error::Io)?;
        filled += count;
        if count > 0 {
            continue;
        }
        pages.spend(BLOCK_WORK_BYTES)?;
        if decoder.is_finished() {
            if input.at == input.end {
                break;
            }
            decoder.reset(&mut *input).map_err(|_| Error::Io)?;
        }
        decoder.decode_blocks(&mut *input, BlockDecodingStrategy::UptoBlocks(1)).map_err(|_| Error::Io)?;
    }
    Ok(filled)
}

/// The window of the first Zstandard frame at an offset, capped at the size of the section; `None` if there is no
/// frame. Source: RFC 8878, section 3.1.1.1.
fn window_bytes(image: &Image, offset: u64, section_bytes: u64) -> Option<u64> {
    const IS_SINGLE_SEGMENT: u8 = 1 << 5;
    let mut header = [0; 6];
    image.read_exact_at(offset, &mut header).ok()?;
    let [_, _, _, _, descriptor, window] = header;
    if descriptor & IS_SINGLE_SEGMENT != 0 {
        return Some(section_bytes);
    }
    let base = 1_u64 << (10 + (window >> 3));
    Some((base + base / 8 * u64::from(window & 7)).min(section_bytes))
}

/// The compressed bytes of a section.
struct Input<'a> {
    image: &'a Image,
    at: u64,
    end: u64,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let count = self.image.read_at(self.at, buffer.get_mut(..wanted).unwrap_or_default())?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: u64 = 96;

    fn content() -> Vec<u8> {
        // Neither constant nor random.
        let mut state = 1_u64;
        let mut byte = |at: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at);
            b"abcdefghijklmnop"[(state >> 60) as usize]
        };
        (0..PAGES * PAGE_BYTES - 100).map(&mut byte).collect()
    }

    fn section(kind: u32, bytes: u64, packed: &[u8]) -> Vec<u8> {
        let header = [u64::from(kind), bytes, 1].map(u64::to_le_bytes).concat();
        [b"before".as_slice(), &header, packed].concat()
    }

    fn zlib(content: &[u8]) -> Vec<u8> {
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(content, 6);
        section(ELFCOMPRESS_ZLIB.0, content.len() as u64, &packed)
    }

    /// Frames of a few pages each, as LLVM's linker writes them.
    fn zstd(content: &[u8]) -> Vec<u8> {
        let frame = |part: &[u8]| {
            ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest)
        };
        let packed: Vec<u8> = content.chunks(40 * PAGE_BYTES as usize).flat_map(frame).collect();
        section(ELFCOMPRESS_ZSTD.0, content.len() as u64, &packed)
    }

    fn opened(section: Vec<u8>) -> (Image, CompressedSection) {
        let end = section.len() as u64;
        let image = Image::from(section);
        let packed = CompressedSection::read(&image, 6..end).unwrap();
        (image, packed)
    }

    fn allowing(work_bytes: u64) -> PageCache {
        let pages = PageCache::new(0);
        pages.set_work_budget(work_bytes);
        pages
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        #[test]
        fn a_page_is_the_same_in_whichever_order_pages_are_read(order in prop::collection::vec(0..PAGES, 1..12)) {
            let content = content();
            for section in [zlib(&content), zstd(&content)] {
                let (image, mut packed) = opened(section);
                let room_bytes = packed.set_checkpoint_stride(STRIDE_BYTES_MIN);
                for page in &order {
                    let mut buffer = vec![0; PAGE_BYTES as usize];
                    let filled = packed.fill(&image, &allowing(u64::MAX), *page, &mut buffer).unwrap();
                    let expected = content.chunks(PAGE_BYTES as usize).nth(*page as usize).unwrap();
                    prop_assert!(buffer[..filled] == *expected, "page {page}");
                }
                prop_assert!(packed.checkpoints.borrow().len() as u64 * STATE_BYTES <= room_bytes);
            }
        }

        #[test]
        fn any_change_of_a_section_is_survived(at in any::<prop::sample::Index>(), value in any::<u8>()) {
            for mut section in [zlib(&content()), zstd(&content())] {
                let at = at.index(section.len());
                section[at] = value;
                let end = section.len() as u64;
                let image = Image::from(section);
                let Some(packed) = CompressedSection::read(&image, 6..end) else { continue };
                for page in [0, 50, 3, PAGES - 1, PAGES] {
                    let _ = packed.fill(&image, &allowing(16 << 20), page, &mut vec![0; PAGE_BYTES as usize]);
                }
            }
        }
    }

    /// Going back costs no more than the distance between two checkpoints.
    #[test]
    fn the_state_that_was_kept_last_before_a_page_is_where_unpacking_begins() {
        let content = content();
        for (section, work_bytes) in [(zlib(&content), STRIDE_BYTES_MIN), (zstd(&content), 40 * PAGE_BYTES)] {
            let (image, mut packed) = opened(section);
            packed.set_checkpoint_stride(STRIDE_BYTES_MIN);
            let mut buffer = vec![0; PAGE_BYTES as usize];
            packed.fill(&image, &allowing(u64::MAX), PAGES - 1, &mut buffer).unwrap();
            assert!(!packed.checkpoints.borrow().is_empty());
            for page in (0..PAGES).rev() {
                // Twice: the decompressed bytes, and the compressed ones.
                packed.fill(&image, &allowing(2 * (work_bytes + PAGE_BYTES)), page, &mut buffer).unwrap();
            }
        }
    }

    #[test]
    fn what_holds_nothing_costs_work_all_the_same() {
        // A frame with a window of 1 KiB, then empty blocks: few enough to end soon even if they weren't counted.
        const BLOCKS: usize = 20_000;
        let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0][..], &[0; 3 * BLOCKS]].concat();
        let (image, packed) = opened(section(ELFCOMPRESS_ZSTD.0, 1 << 40, &frame));
        let pages = allowing(1 << 20);
        assert_eq!(packed.fill(&image, &pages, 0, &mut vec![0; PAGE_BYTES as usize]), Err(Error::Io));
        assert!(pages.is_exhausted());
    }

    #[test]
    fn a_header_that_is_cut_or_of_another_format_is_none() {
        let section = section(7, 1, b"");
        let end = section.len() as u64;
        let image = Image::from(section);
        assert!(CompressedSection::read(&image, 6..end).is_none());
        assert!(CompressedSection::read(&image, 6..20).is_none());
        assert!(CompressedSection::read(&image, u64::MAX - 1..u64::MAX).is_none());
    }
}
