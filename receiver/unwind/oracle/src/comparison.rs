//! Compares one file's table with gimli's rows.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use gimli::{BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, LittleEndian};
use object::elf::PT_GNU_EH_FRAME;
use object::read::elf::ProgramHeader as _;
use object::{File, Object as _, ObjectSection as _, ObjectSegment as _};
use sidewinder_address::{LoadSegment, Svma};
use sidewinder_unwind::{EndReason, Entry, RowSource, UnwindTable, load_segments, unwind_table};

use crate::gimli_rows::{Dialect, ExpectedRow, FdeTable, GimliSlice};

/// The reasons for which a row may differ from gimli's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difference {
    /// Entry points and the starts of coroutines have no caller, whatever their unwind information states.
    StackBegins,
    /// gimli has nothing; the code is one of the few functions that are known by name and bytes.
    KnownByCode,
    /// The rule can't be expressed as a row; the row is an end with that reason.
    CannotBeStated,
    /// gimli rejects the function because `DW_CFA_def_cfa_register` or `_offset` follows an expression, to which the
    /// unwinders of GCC and LLVM, and readelf, give one meaning.
    CfaAfterExpression,
    /// Both reject the function.
    Malformed,
    /// Go's own table has more information about this function of its runtime than the `.debug_frame` written beside
    /// it.
    GoRuntime,
    /// The frame of arm64's dynamic linker while it resolves a symbol: its rows don't count what the linkage table has pushed.
    PushedByLinkage,
    /// GCC's unwinder overwrites its own frame when it passes control to the handler of an exception.
    OverwrittenFrame,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StackBegins => "a stack begins here",
            Self::KnownByCode => "known by name and code",
            Self::CannotBeStated => "not expressible as a row",
            Self::CfaAfterExpression => "CFA register after an expression",
            Self::Malformed => "rejected by both",
            Self::GoRuntime => "Go's table has more information",
            Self::PushedByLinkage => "pushed by a linkage table",
            Self::OverwrittenFrame => "the unwinder's frame is overwritten",
        })
    }
}

/// The result of comparing a file.
#[derive(Clone, Default, Debug)]
pub struct Comparison {
    /// Addresses at which a row of either side begins or ends.
    pub boundaries: u64,
    /// Addresses compared: boundaries, and one byte before and after each.
    pub compared: u64,
    /// Addresses at which the two differ for a listed reason.
    pub differences: BTreeMap<Difference, u64>,
    /// Addresses of Go functions at which only the CFA and the return address were compared: their `.debug_frame`
    /// states nothing about the frame pointer, `.gopclntab` does.
    pub without_frame_pointer: u64,
    /// Addresses without DWARF that only `.gopclntab` or the machine code covers. They are not among those compared.
    pub without_dwarf: u64,
    /// The number of differences without a listed reason.
    pub unexplained: u64,
    /// The first few of these, as text.
    pub examples: Vec<String>,
}

/// The most unexplained differences that are kept as text.
const MAX_EXAMPLES: usize = 5;

/// Why a file can't be compared.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// It is not a readable ELF file.
    #[error("not a readable ELF file")]
    Elf(#[from] object::Error),
    /// It has no table.
    #[error("no unwind table")]
    Unwind(#[from] sidewinder_unwind::UnwindTableError),
}

/// Compares a file's table with gimli's rows of its `.eh_frame` and, where that has none, of its `.debug_frame`.
///
/// # Errors
///
/// If there is no table.
pub fn compare(data: &[u8]) -> Result<(UnwindTable, Comparison), ComparisonError> {
    let file = File::parse(data)?;
    let table = unwind_table(&file)?;
    let sections = CfiSections::from_file(&file);
    let dialect = Dialect::of(file.architecture());
    let mut eh_frame = EhFrame::from(sections.slice(&sections.eh_frame));
    eh_frame.set_vendor(dialect.vendor);
    let mut debug_frame = DebugFrame::from(sections.slice(&sections.debug_frame));
    debug_frame.set_vendor(dialect.vendor);
    let mut sides = TableComparison {
        eh_frame: FdeTable::new(eh_frame, &sections.bases, dialect),
        debug_frame: FdeTable::new(debug_frame, &sections.bases, dialect),
        table: &table,
        is_go: table.summary().functions.contains_key(&RowSource::GoPclntab),
        by_machine_code: table.by_machine_code().collect(),
        text: HashMap::new(),
    };
    let comparison = sides.compare(&load_segments(&file));
    Ok((table, comparison))
}

/// The sections that gimli reads.
struct CfiSections<'data> {
    eh_frame: Cow<'data, [u8]>,
    debug_frame: Cow<'data, [u8]>,
    bases: BaseAddresses,
}

impl<'data> CfiSections<'data> {
    fn from_file(file: &File<'data>) -> Self {
        let data = |name| {
            let section = file.section_by_name(name)?;
            Some((section.uncompressed_data().ok()?, section.address()))
        };
        let mut bases = BaseAddresses::default();
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let (eh_frame, address) =
            data(".eh_frame").or_else(|| eh_frame_by_header(file)).unwrap_or((Cow::Borrowed(&[]), 0));
        let debug_frame = data(".debug_frame").map(|(data, _)| data).unwrap_or_default();
        Self { eh_frame, debug_frame, bases: bases.set_eh_frame(address) }
    }

    fn slice<'a>(&self, data: &'a [u8]) -> GimliSlice<'a> {
        GimliSlice::new(data, LittleEndian)
    }
}

/// `.eh_frame` of a file without section headers.
fn eh_frame_by_header<'data>(file: &File<'data>) -> Option<(Cow<'data, [u8]>, u64)> {
    let File::Elf64(elf) = file else { return None };
    let endian = elf.endian();
    let header = elf.elf_program_headers().iter().find(|header| header.p_type(endian) == PT_GNU_EH_FRAME)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.p_vaddr(endian));
    let data = header.data(endian, elf.data()).ok()?;
    let address = EhFrameHdr::new(data, LittleEndian).parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    file.segments().find_map(|segment| {
        let within = usize::try_from(address.checked_sub(segment.address())?).ok()?;
        Some((Cow::Borrowed(segment.data().ok()?.get(within..)?), address))
    })
}

/// Both sides of a comparison.
struct TableComparison<'a> {
    eh_frame: FdeTable<'a, EhFrame<GimliSlice<'a>>>,
    debug_frame: FdeTable<'a, DebugFrame<GimliSlice<'a>>>,
    table: &'a UnwindTable,
    is_go: bool,
    /// What the table has from machine code, in order.
    by_machine_code: Vec<Range<Svma>>,
    /// The columns of each entry of the table.
    text: HashMap<Entry, Rc<[String; 3]>>,
}

/// The outcome at one address.
enum AddressOutcome {
    Equal,
    EqualButFramePointer,
    WithoutDwarf,
    Differs(Difference),
    Unexplained,
}

impl TableComparison<'_> {
    fn compare(&mut self, loads: &[LoadSegment]) -> Comparison {
        let mut boundaries: Vec<u64> = self.table.rows().map(|row| row.start.0).collect();
        self.eh_frame.boundaries(|at| boundaries.push(at));
        self.debug_frame.boundaries(|at| boundaries.push(at));
        boundaries.sort_unstable();
        boundaries.dedup();
        let is_code =
            |at: u64| loads.iter().any(|load| load.executable && load.file_offset_of(Svma(at)).is_some());
        let mut comparison = Comparison::default();
        let mut next = 0;
        for boundary in boundaries.into_iter().filter(|at| is_code(*at)) {
            comparison.boundaries += 1;
            for address in boundary.saturating_sub(1).max(next)..=boundary.saturating_add(1) {
                next = address + 1;
                if is_code(address) {
                    self.compare_at(address, &mut comparison);
                }
            }
        }
        comparison
    }

    fn compare_at(&mut self, address: u64, comparison: &mut Comparison) {
        comparison.compared += 1;
        let by_eh_frame = self.eh_frame.expected(address);
        let from_debug_frame = by_eh_frame.is_none();
        let expected = by_eh_frame.or_else(|| self.debug_frame.expected(address));
        let entry = self.table.lookup(Svma(address));
        match self.outcome(address, expected.as_deref(), &entry, self.is_go && from_debug_frame) {
            AddressOutcome::Equal => {}
            AddressOutcome::EqualButFramePointer => comparison.without_frame_pointer += 1,
            AddressOutcome::WithoutDwarf => {
                comparison.without_dwarf += 1;
                comparison.compared -= 1;
            }
            AddressOutcome::Differs(why) => *comparison.differences.entry(why).or_default() += 1,
            AddressOutcome::Unexplained => {
                comparison.unexplained += 1;
                if comparison.examples.len() < MAX_EXAMPLES {
                    let said = format!("{address:#x}: gimli says {expected:?}, the table {entry:?}");
                    comparison.examples.push(said);
                }
            }
        }
    }

    fn outcome(
        &mut self,
        address: u64,
        expected: Option<&ExpectedRow>,
        entry: &Entry,
        is_go: bool,
    ) -> AddressOutcome {
        let is_root = entry.rule().is_some_and(sidewinder_unwind::Rule::is_root);
        match (expected, entry) {
            (Some(ExpectedRow::Outermost), Entry::Rule(rule)) if rule.is_root() => AddressOutcome::Equal,
            (Some(ExpectedRow::Row { cfa, frame_pointer, return_address }), Entry::Rule(_)) => {
                let text = self.text(entry);
                let [our_cfa, our_frame_pointer, our_return_address] = &*text;
                match (
                    our_cfa == cfa && our_return_address == return_address,
                    our_frame_pointer == frame_pointer,
                ) {
                    (true, true) => AddressOutcome::Equal,
                    (true, false) if is_go => AddressOutcome::EqualButFramePointer,
                    _ if is_root => AddressOutcome::Differs(Difference::StackBegins),
                    _ if is_go => AddressOutcome::Differs(Difference::GoRuntime),
                    _ if return_address == "cfa+8" && our_return_address == "cfa-8" => {
                        AddressOutcome::Differs(Difference::PushedByLinkage)
                    }
                    _ if our_cfa == cfa && our_frame_pointer == "undefined" => {
                        AddressOutcome::Differs(Difference::OverwrittenFrame)
                    }
                    _ => AddressOutcome::Unexplained,
                }
            }
            (None, Entry::End(EndReason::NoInformation)) => AddressOutcome::Equal,
            (Some(ExpectedRow::Exotic), Entry::End(EndReason::Unsupported(_))) => {
                AddressOutcome::Differs(Difference::CannotBeStated)
            }
            (Some(ExpectedRow::Refused(_)), Entry::End(EndReason::Malformed)) => {
                AddressOutcome::Differs(Difference::Malformed)
            }
            (Some(ExpectedRow::Refused(gimli::Error::CfiInstructionInInvalidContext)), _) => {
                AddressOutcome::Differs(Difference::CfaAfterExpression)
            }
            (None, _) if is_go => AddressOutcome::WithoutDwarf,
            _ if is_root => AddressOutcome::Differs(Difference::StackBegins),
            (None, _) if self.is_by_machine_code(address) => AddressOutcome::WithoutDwarf,
            (None, _) if self.table.summary().functions.contains_key(&RowSource::KnownFunction) => {
                AddressOutcome::Differs(Difference::KnownByCode)
            }
            (_, _) if is_go => AddressOutcome::Differs(Difference::GoRuntime),
            _ => AddressOutcome::Unexplained,
        }
    }

    fn is_by_machine_code(&self, address: u64) -> bool {
        let after = self.by_machine_code.partition_point(|range| range.start.0 <= address);
        after > 0 && address < self.by_machine_code[after - 1].end.0
    }

    fn text(&mut self, entry: &Entry) -> Rc<[String; 3]> {
        let text = self.text.entry(*entry).or_insert_with(|| {
            let line = entry.to_string();
            let mut columns = line.split('\t').map(str::to_owned);
            Rc::new(std::array::from_fn(|_| columns.next().unwrap_or_default()))
        });
        Rc::clone(text)
    }
}
