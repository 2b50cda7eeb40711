//! Converts rules to and from the programs' format.

use sidewinder_unwind_table::{
    CalleeSaved, Cfa, EndReason, Entry, Register, ReturnAddress, Rule, SavedRegister,
};

use crate::intf::{self, sw_rule};
use crate::outcome::Outcome;

/// The programs give registers the same numbers and roles.
const _: () = {
    assert!(intf::SW_REG_PC == Register::PC_DWARF as u32);
    assert!(intf::SW_REG_SP == Register::STACK_POINTER.dwarf() as u32);
    assert!(intf::SW_REG_FP == Register::FRAME_POINTER.dwarf() as u32);
    assert!(intf::SW_REG_CALLEE_SAVED == Register::CALLEE_SAVED.dwarf() as u32);
    assert!(intf::SW_REG_SYSCALL_RESULT == Register::SYSCALL_RESULT.dwarf() as u32);
    assert!(intf::SW_RULE_REGISTERS as usize >= Register::COUNT);
};

/// How a table lets walks proceed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Packing {
    /// By frame pointers where the rows prove them, by rows elsewhere.
    #[default]
    Auto,
    /// By rows everywhere, even where they say the same as a frame pointer.
    Tables,
    /// By frame pointers where the rows prove them; nowhere else.
    FramePointers,
}

impl sw_rule {
    /// The programs' rule for a table's entry, in this mode.
    pub(super) fn new(entry: Entry, packing: Packing) -> Self {
        match entry {
            Entry::Rule(rule) if rule.is_root() => Self::from(&rule),
            Entry::Rule(rule) => match packing {
                Packing::FramePointers if !rule.is_frame_pointer() => Self::none(Outcome::NoFramePointer),
                Packing::Tables if rule == Rule::FRAME_POINTER => {
                    // Equal to the fixed rule except for its index, which makes walks use the rows.
                    let mut by_rows = Self::from(&rule);
                    by_rows.set_addend_by_8(1);
                    by_rows
                }
                _ => Self::from(&rule),
            },
            Entry::End(EndReason::NoInformation) => Self::none(match packing {
                Packing::FramePointers => Outcome::NoFramePointer,
                Packing::Auto | Packing::Tables => Outcome::NoRule,
            }),
            Entry::End(EndReason::Malformed | EndReason::Unsupported(_)) => {
                Self::none(Outcome::UnsupportedRule)
            }
            Entry::End(EndReason::NotAsked) => Self::none(Outcome::NoTable),
        }
    }

    /// Not a rule, but the outcome of a walk that gets here.
    pub(super) fn none(why: Outcome) -> Self {
        Self { cfa_offset: why as i32, ..Self::default() }
    }

    /// The index, if it is the same in every segment.
    pub(super) fn fixed_number(&self) -> Option<u16> {
        if *self == Self::none(Outcome::NoRule) {
            return Some(intf::SW_RULE_NONE as u16);
        }
        (*self == Self::from(&Rule::FRAME_POINTER)).then_some(intf::SW_RULE_FRAME_POINTER as u16)
    }
}

impl sw_rule {
    /// The rule as an unwind-table rule, or the outcome of a walk that gets here.
    pub(super) fn decode(&self) -> Result<Rule, Outcome> {
        let unsupported = Outcome::UnsupportedRule;
        let has = |flag: u32| u32::from(self.flags()) & flag != 0;
        let register = |number: u8| Register::from_dwarf(number.into()).ok_or(unsupported);
        let cfa = match u32::from(self.cfa_base()) {
            intf::SW_CFA_NONE => {
                let outcome = u8::try_from(self.cfa_offset).ok().and_then(Outcome::from_number);
                return Err(outcome.unwrap_or(unsupported));
            }
            intf::SW_CFA_REGISTER => {
                Cfa::Register { register: register(self.cfa_register())?, offset: self.cfa_offset }
            }
            intf::SW_CFA_PLT => {
                Cfa::Plt { threshold: u8::try_from(self.cfa_offset).map_err(|_| unsupported)? }
            }
            intf::SW_CFA_DEREF => Cfa::Deref {
                register: register(self.cfa_register())?,
                offset: self.cfa_offset,
                addend: i32::from(self.addend_by_8()) * 8,
            },
            intf::SW_CFA_DEREF_INDEXED => Cfa::DerefIndexed {
                register: register(self.cfa_register())?,
                index: register(self.ra_register())?,
                offset: self.cfa_offset,
                addend: i32::from(self.addend_by_8()) * 8,
            },
            _ => return Err(unsupported),
        };
        let frame_pointer = match u32::from(self.fp()) {
            intf::SW_PLACE_SAME => SavedRegister::Same,
            intf::SW_PLACE_CFA => SavedRegister::AtCfa(self.fp_offset),
            intf::SW_PLACE_MEMORY => {
                SavedRegister::At { register: register(self.fp_register())?, offset: self.fp_offset }
            }
            intf::SW_PLACE_REGISTER => SavedRegister::InRegister(register(self.fp_register())?),
            _ => SavedRegister::Undefined,
        };
        let return_address = match u32::from(self.ra()) {
            intf::SW_PLACE_CFA if has(intf::SW_RULE_AFTER_CLONE) => ReturnAddress::OfParent(self.ra_offset),
            intf::SW_PLACE_CFA => ReturnAddress::AtCfa(self.ra_offset),
            intf::SW_PLACE_MEMORY => {
                ReturnAddress::At { register: register(self.ra_register())?, offset: self.ra_offset }
            }
            intf::SW_PLACE_REGISTER => ReturnAddress::InRegister(register(self.ra_register())?),
            _ => ReturnAddress::Undefined,
        };
        let keeps_and_saves = intf::SW_RULE_KEEPS_CALLEE_SAVED | intf::SW_RULE_SAVES_CALLEE_SAVED;
        let callee_saved = if u32::from(self.flags()) & keeps_and_saves == keeps_and_saves {
            CalleeSaved::AfterFramePointer
        } else if has(intf::SW_RULE_SAVES_CALLEE_SAVED) {
            CalleeSaved::AtCfa(-8 * (i32::from(self.addend_by_8()) + 1))
        } else if has(intf::SW_RULE_KEEPS_CALLEE_SAVED) {
            CalleeSaved::Same
        } else {
            CalleeSaved::Unknown
        };
        Ok(Rule {
            cfa,
            frame_pointer,
            return_address,
            callee_saved,
            signal_frame: has(intf::SW_RULE_SIGNAL_FRAME),
        })
    }
}

impl From<&Rule> for sw_rule {
    /// A rule that the programs' format can't express becomes one that ends the walk with an outcome that says so.
    fn from(rule: &Rule) -> Self {
        let mut to = Self::default();
        let mut index = None;
        match rule.cfa {
            Cfa::Register { register, offset } => {
                to.set_cfa_base(intf::SW_CFA_REGISTER as u8);
                to.set_cfa_register(register.dwarf() as u8);
                to.cfa_offset = offset;
            }
            Cfa::Plt { threshold } => {
                to.set_cfa_base(intf::SW_CFA_PLT as u8);
                to.cfa_offset = i32::from(threshold);
            }
            Cfa::Deref { register, offset, addend } => {
                let Some(addend_by_8) = by_8(addend) else { return Self::none(Outcome::UnsupportedRule) };
                to.set_cfa_base(intf::SW_CFA_DEREF as u8);
                to.set_cfa_register(register.dwarf() as u8);
                to.cfa_offset = offset;
                to.set_addend_by_8(addend_by_8);
            }
            Cfa::DerefIndexed { register, index: by, offset, addend } => {
                let is_plain = matches!(rule.return_address, ReturnAddress::AtCfa(_));
                let Some(addend_by_8) = by_8(addend).filter(|_| is_plain) else {
                    return Self::none(Outcome::UnsupportedRule);
                };
                to.set_cfa_base(intf::SW_CFA_DEREF_INDEXED as u8);
                to.set_cfa_register(register.dwarf() as u8);
                to.cfa_offset = offset;
                to.set_addend_by_8(addend_by_8);
                index = Some(by);
            }
        }
        let (place, register, offset) = match rule.frame_pointer {
            SavedRegister::Same => (intf::SW_PLACE_SAME, 0, 0),
            SavedRegister::AtCfa(offset) => (intf::SW_PLACE_CFA, 0, offset),
            SavedRegister::At { register, offset } => (intf::SW_PLACE_MEMORY, register.dwarf(), offset),
            SavedRegister::InRegister(register) => (intf::SW_PLACE_REGISTER, register.dwarf(), 0),
            SavedRegister::Undefined => (intf::SW_PLACE_UNDEFINED, 0, 0),
        };
        to.set_fp(place as u8);
        to.set_fp_register(register as u8);
        to.fp_offset = offset;
        let (place, register, offset) = match rule.return_address {
            ReturnAddress::AtCfa(offset) | ReturnAddress::OfParent(offset) => (intf::SW_PLACE_CFA, 0, offset),
            ReturnAddress::At { register, offset } => (intf::SW_PLACE_MEMORY, register.dwarf(), offset),
            ReturnAddress::InRegister(register) => (intf::SW_PLACE_REGISTER, register.dwarf(), 0),
            ReturnAddress::Undefined => (intf::SW_PLACE_UNDEFINED, 0, 0),
        };
        to.set_ra(place as u8);
        to.set_ra_register(index.map_or(register, Register::dwarf) as u8);
        to.ra_offset = offset;
        let signal_frame = if rule.signal_frame { intf::SW_RULE_SIGNAL_FRAME } else { 0 };
        let is_after_clone = matches!(rule.return_address, ReturnAddress::OfParent(_));
        let after_clone = if is_after_clone { intf::SW_RULE_AFTER_CLONE } else { 0 };
        let has_addend = matches!(rule.cfa, Cfa::Deref { .. } | Cfa::DerefIndexed { .. });
        let callee_saved = match rule.callee_saved {
            CalleeSaved::Same => intf::SW_RULE_KEEPS_CALLEE_SAVED,
            CalleeSaved::AfterFramePointer => {
                intf::SW_RULE_KEEPS_CALLEE_SAVED | intf::SW_RULE_SAVES_CALLEE_SAVED
            }
            // If it is at a location that the format can't express, it is lost.
            CalleeSaved::AtCfa(offset) if !has_addend => {
                match by_8(offset.saturating_neg().saturating_sub(8)) {
                    Some(words) => {
                        to.set_addend_by_8(words);
                        intf::SW_RULE_SAVES_CALLEE_SAVED
                    }
                    None => 0,
                }
            }
            CalleeSaved::AtCfa(_) | CalleeSaved::Unknown => 0,
        };
        to.set_flags((signal_frame | after_clone | callee_saved) as u8);
        to
    }
}

/// An addend in words, if the programs' format can express it.
fn by_8(addend: i32) -> Option<u8> {
    let words = u8::try_from(addend / 8).ok()?;
    (addend % 8 == 0 && words <= 15).then_some(words)
}
