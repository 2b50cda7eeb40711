//! gimli's results for addresses, in the columns of a row.

use std::cmp::Reverse;
use std::ops::Range;
use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EndianSlice, Expression, FrameDescriptionEntry, LittleEndian,
    Operation, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
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

/// The functions of one section of call frame information.
pub(crate) struct FdeTable<'data, Section> {
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
    pub(crate) fn new(section: Section, bases: &BaseAddresses) -> Self {
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
        Self { section, bases, fdes, highest_ends, context, evaluated: None }
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
            let describe =
                RowFormatter { section: &self.section, return_address: fde.cie().return_address_register() };
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
    return_address: gimli::Register,
}

impl<'data, Section: UnwindSection<GimliSlice<'data>>> RowFormatter<'_, Section> {
    fn row(&self, row: &UnwindTableRow<usize>) -> Option<ExpectedRow> {
        let mut return_address = self.place(row.register(self.return_address))?;
        if return_address == "undefined" {
            return Some(ExpectedRow::Outermost);
        }
        let mut cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => format!("{}{offset:+}", name(*register)?),
            CfaRule::Expression(expression) => self.value(expression)?,
        };
        let mut frame_pointer = match row.register(X86_64::RBP) {
            None => "same".to_owned(),
            rule => self.place(rule)?,
        };
        let from_cfa = |place: &str| match (place.strip_prefix("cfa"), row.cfa()) {
            (None, _) => Some(place.to_owned()),
            (Some(by), CfaRule::RegisterAndOffset { register, offset }) => {
                Some(format!("*({}{:+})", name(*register)?, offset + by.parse::<i64>().ok()?))
            }
            (Some(_), CfaRule::Expression(_)) => None,
        };
        // The stack pointer's rule matters if it differs from the CFA.
        let stack_pointer = match row.register(X86_64::RSP) {
            None => cfa.clone(),
            Some(RegisterRule::SameValue | RegisterRule::Undefined) => cfa.clone(),
            Some(RegisterRule::ValOffset(0)) => cfa.clone(),
            Some(RegisterRule::Register(register)) => format!("{}+0", name(register)?),
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
            RegisterRule::Register(register) => Some(name(register)?.to_owned()),
            RegisterRule::Expression(expression) => match *self.operations(&expression)? {
                [Operation::RegisterOffset { register, offset, .. }] => {
                    Some(format!("*({}{offset:+})", name(register)?))
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
            [RegisterOffset { register, offset, .. }] => Some(format!("{}{offset:+}", name(register)?)),
            [RegisterOffset { register, offset, .. }, Deref { .. }] => {
                Some(format!("*({}{offset:+})", name(register)?))
            }
            [RegisterOffset { register, offset, .. }, Deref { .. }, PlusConstant { value }] => {
                Some(format!("*({}{offset:+})+{value}", name(register)?))
            }
            [
                RegisterOffset { register, offset, .. },
                RegisterOffset { register: index, offset: 0, .. },
                UnsignedConstant { value: 8 },
                Mul,
                Plus,
                Deref { .. },
                PlusConstant { value },
            ] => Some(format!("*({}+8*{}{offset:+})+{value}", name(register)?, name(index)?)),
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
}

fn name(register: gimli::Register) -> Option<&'static str> {
    X86_64::register_name(register).filter(|name| name.starts_with('r') && register.0 < 16)
}
