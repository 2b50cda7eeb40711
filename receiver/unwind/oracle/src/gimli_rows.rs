//! gimli's results for addresses, in the columns of a row.

use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

use gimli::{
    AArch64, BaseAddresses, CfaRule, CieOrFde, EndianSlice, Expression, FrameDescriptionEntry, LittleEndian,
    Operation, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow,
    Vendor, X86_64,
};

pub(crate) type GimliSlice<'data> = EndianSlice<'data, LittleEndian>;
type GimliFde<'data> = FrameDescriptionEntry<GimliSlice<'data>>;

/// gimli's result for an address.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ExpectedRow {
    Row {
        cfa: String,
        frame_pointer: String,
        return_address: String,
    },
    /// A row without a return address, whatever else it states.
    Outermost,
    /// gimli has a row, but of a form that rows don't support.
    Exotic,
    /// gimli rejects the function.
    Refused(gimli::Error),
}

/// What the columns depend on, by the architecture of a file.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) vendor: Vendor,
    stack_pointer: Register,
    frame_pointer: Register,
    /// What the return address is where nothing is said of it: the link register's value.
    unstated_return_address: Option<&'static str>,
    /// The name of a register that rows can refer to.
    name: fn(Register) -> Option<&'static str>,
}

impl Dialect {
    const X86_64: Self = Self {
        vendor: Vendor::Default,
        stack_pointer: X86_64::RSP,
        frame_pointer: X86_64::RBP,
        unstated_return_address: None,
        name: |register| X86_64::register_name(register).filter(|_| register.0 < 16),
    };

    const AARCH64: Self = Self {
        vendor: Vendor::AArch64,
        stack_pointer: AArch64::SP,
        frame_pointer: AArch64::X29,
        unstated_return_address: Some("x30"),
        // gimli writes them in capitals.
        name: |register| AARCH64_NAMES.get(usize::from(register.0)).copied(),
    };

    pub(crate) fn of(architecture: object::Architecture) -> Self {
        match architecture {
            object::Architecture::Aarch64 => Self::AARCH64,
            _ => Self::X86_64,
        }
    }
}

/// In the order of DWARF for the Arm 64-bit Architecture, section 4.1.
const AARCH64_NAMES: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    "sp",
];

/// The functions of one section of call frame information.
pub(crate) struct FdeTable<'data, Section> {
    dialect: Dialect,
    section: Section,
    bases: BaseAddresses,
    /// By start; of equal starts, the first of the section last.
    fdes: Vec<GimliFde<'data>>,
    /// The highest end among a function and those before it.
    highest_ends: Vec<u64>,
    context: UnwindContext<usize>,
    /// The rows of the last function looked up, with its index.
    evaluated: Option<(usize, Vec<EvaluatedRow>)>,
}

type EvaluatedRow = (Range<u64>, Rc<ExpectedRow>);

impl<'data, Section> FdeTable<'data, Section>
where
    Section: UnwindSection<GimliSlice<'data>>,
    Section::Offset: gimli::UnwindOffset<usize>,
{
    /// All functions that gimli can read. Others are left out, up to the first that hides the rest of the section.
    pub(crate) fn new(section: Section, bases: &BaseAddresses, dialect: Dialect) -> Self {
        let mut fdes = Vec::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(fde) = partial.parse(Section::cie_from_offset)
                && fde.initial_address() < fde.end_address()
            {
                fdes.push(fde);
            }
        }
        fdes.sort_by_key(|fde| (fde.initial_address(), Reverse(gimli_offset(fde))));
        let highest_ends = fdes
            .iter()
            .scan(0, |highest, fde| {
                *highest = fde.end_address().max(*highest);
                Some(*highest)
            })
            .collect();
        let (bases, context) = (bases.clone(), UnwindContext::new());
        Self { dialect, section, bases, fdes, highest_ends, context, evaluated: None }
    }

    /// Passes every address at which a row or a function begins or ends to `sink`.
    pub(crate) fn boundaries(&mut self, mut sink: impl FnMut(u64)) {
        for index in 0..self.fdes.len() {
            sink(self.fdes[index].initial_address());
            sink(self.fdes[index].end_address());
            self.evaluate(index).iter().for_each(|(range, _)| sink(range.start));
        }
    }

    /// The row of the function that starts last among those around an address.
    pub(crate) fn expected(&mut self, address: u64) -> Option<Rc<ExpectedRow>> {
        let after = self.fdes.partition_point(|fde| fde.initial_address() <= address);
        let index = (0..after)
            .rev()
            .take_while(|index| self.highest_ends[*index] > address)
            .find(|index| self.fdes[*index].end_address() > address)?;
        let rows = self.evaluate(index);
        let found = rows.iter().rev().find(|(range, _)| range.contains(&address));
        Some(found.map_or_else(|| Rc::new(ExpectedRow::Exotic), |(_, expected)| expected.clone()))
    }

    fn evaluate(&mut self, index: usize) -> &[EvaluatedRow] {
        if self.evaluated.as_ref().is_none_or(|(evaluated, _)| *evaluated != index) {
            let fde = self.fdes[index].clone();
            let rows = self.rows_of(&fde).unwrap_or_else(|error| {
                vec![(fde.initial_address()..fde.end_address(), Rc::new(ExpectedRow::Refused(error)))]
            });
            self.evaluated = Some((index, rows));
        }
        self.evaluated.as_ref().map_or(&[], |(_, rows)| rows)
    }

    fn rows_of(&mut self, fde: &GimliFde<'data>) -> gimli::Result<Vec<EvaluatedRow>> {
        let mut evaluated = Vec::new();
        let mut rows = fde.rows(&self.section, &self.bases, &mut self.context)?;
        while let Some(row) = rows.next_row()? {
            let return_address = fde.cie().return_address_register();
            let describe = RowFormatter { section: &self.section, return_address, dialect: self.dialect };
            let expected = describe.row(row).unwrap_or(ExpectedRow::Exotic);
            evaluated.push((row.start_address()..row.end_address(), Rc::new(expected)));
        }
        Ok(evaluated)
    }
}

fn gimli_offset(fde: &GimliFde<'_>) -> usize {
    fde.offset()
}

/// Formats rows as text.
struct RowFormatter<'section, Section> {
    section: &'section Section,
    return_address: Register,
    dialect: Dialect,
}

impl<'data, Section: UnwindSection<GimliSlice<'data>>> RowFormatter<'_, Section> {
    fn row(&self, row: &UnwindTableRow<usize>) -> Option<ExpectedRow> {
        let mut return_address =
            match (row.register(self.return_address), self.dialect.unstated_return_address) {
                (None | Some(RegisterRule::SameValue), Some(unstated)) => unstated.to_owned(),
                (rule, _) => self.place(rule)?,
            };
        if return_address == "undefined" {
            return Some(ExpectedRow::Outermost);
        }
        let mut cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => format!("{}{offset:+}", self.name(*register)?),
            CfaRule::Expression(expression) => self.value(expression)?,
        };
        let mut frame_pointer = match row.register(self.dialect.frame_pointer) {
            None => "same".to_owned(),
            rule => self.place(rule)?,
        };
        let from_cfa = |place: &str| match (place.strip_prefix("cfa"), row.cfa()) {
            (None, _) => Some(place.to_owned()),
            (Some(by), CfaRule::RegisterAndOffset { register, offset }) => {
                Some(format!("*({}{:+})", self.name(*register)?, offset + by.parse::<i64>().ok()?))
            }
            (Some(_), CfaRule::Expression(_)) => None,
        };
        // The stack pointer's rule matters if it differs from the CFA.
        let stack_pointer = match row.register(self.dialect.stack_pointer) {
            None => cfa.clone(),
            Some(RegisterRule::SameValue | RegisterRule::Undefined) => cfa.clone(),
            Some(RegisterRule::ValOffset(0)) => cfa.clone(),
            Some(RegisterRule::Register(register)) => format!("{}+0", self.name(register)?),
            rule => from_cfa(&self.place(rule)?)?,
        };
        if stack_pointer != cfa {
            frame_pointer = from_cfa(&frame_pointer)?;
            return_address = from_cfa(&return_address)?;
            cfa = stack_pointer;
        }
        Some(ExpectedRow::Row { cfa, frame_pointer, return_address })
    }

    fn place(&self, rule: Option<RegisterRule<usize>>) -> Option<String> {
        match rule? {
            RegisterRule::Undefined => Some("undefined".to_owned()),
            RegisterRule::SameValue => Some("same".to_owned()),
            RegisterRule::Offset(offset) => Some(format!("cfa{offset:+}")),
            RegisterRule::Register(register) => Some(self.name(register)?.to_owned()),
            RegisterRule::Expression(expression) => match *self.operations(&expression)? {
                [Operation::RegisterOffset { register, offset, .. }] => {
                    Some(format!("*({}{offset:+})", self.name(register)?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn value(&self, expression: &UnwindExpression<usize>) -> Option<String> {
        use Operation::{And, Deref, Ge, Mul, Plus, PlusConstant, RegisterOffset, Shl, UnsignedConstant};
        let operations = self.operations(expression)?;
        match *operations {
            [RegisterOffset { register, offset, .. }] => Some(format!("{}{offset:+}", self.name(register)?)),
            [RegisterOffset { register, offset, .. }, Deref { .. }] => {
                Some(format!("*({}{offset:+})", self.name(register)?))
            }
            [RegisterOffset { register, offset, .. }, Deref { .. }, PlusConstant { value }] => {
                Some(format!("*({}{offset:+})+{value}", self.name(register)?))
            }
            [
                RegisterOffset { register, offset, .. },
                RegisterOffset { register: index, offset: 0, .. },
                UnsignedConstant { value: 8 },
                Mul,
                Plus,
                Deref { .. },
                PlusConstant { value },
            ] => Some(format!("*({}+8*{}{offset:+})+{value}", self.name(register)?, self.name(index)?)),
            [
                RegisterOffset { register: X86_64::RSP, offset: 8, .. },
                RegisterOffset { register: X86_64::RA, offset: 0, .. },
                UnsignedConstant { value: 15 },
                And,
                UnsignedConstant { value: 10 | 11 },
                Ge,
                UnsignedConstant { value: 3 },
                Shl,
                Plus,
            ] => Some("plt".to_owned()),
            _ => None,
        }
    }

    fn operations(&self, expression: &UnwindExpression<usize>) -> Option<Vec<Operation<GimliSlice<'data>>>> {
        let Expression(bytes) = expression.get(self.section).ok()?;
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
        let mut iter = Expression(bytes).operations(encoding);
        let mut operations = Vec::new();
        while let Some(operation) = iter.next().ok()? {
            operations.push(operation);
        }
        Some(operations)
    }

    fn name(&self, register: Register) -> Option<&'static str> {
        (self.dialect.name)(register)
    }
}
