//! x86-64: an evaluation loop that consists of tail calls. It calls the code of the first instruction through a table, and each
//! instruction's code jumps to the next one's. What calls is short, so that optimizers put copies of it into other functions.
//!
//! Calls that a profile shows to be frequent are made directly, behind a comparison of the table's entry (BOLT's promotion of
//! indirect calls).

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use sidewinder_address::Svma;

use super::super::Activation;
use super::unlinked::{CodePart, decoder, stored};

/// Instructions that are followed from one place.
const INSTRUCTIONS_MAX: usize = 512;
/// An entry of the table.
const ENTRY_BYTES: u32 = 8;
/// The longest direct jump.
const JUMP_BYTES_MAX: u64 = 5;
/// Bytes of a call through a table at a fixed address, without a prefix.
pub(crate) const TABLE_CALL_BYTES: usize = 7;

/// The table at a fixed address through which a function calls.
pub(crate) fn dispatch_table(code: &[u8], start: Svma) -> Option<Svma> {
    let mut instructions = iced_x86::Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    instructions.iter().find(Instruction::is_call_near_indirect).and_then(|call| table_of(&call))
}

/// Where code calls through a table, by the bytes alone: the addresses of the calls, behind their prefix if they have one.
pub(crate) fn calls_through<'a>(code: &'a [u8], start: Svma, table: Svma) -> impl Iterator<Item = Svma> + 'a {
    let table = u32::try_from(table.0).ok().filter(|table| table.cast_signed() >= 0).map(u32::to_le_bytes);
    let is_call = move |bytes: &[u8]| matches!(*bytes, [0xff, 0x14, sib, a, b, c, d] if sib & 0xc7 == 0xc5 && table == Some([a, b, c, d]));
    let places = code.windows(TABLE_CALL_BYTES).enumerate().filter(move |(_, bytes)| is_call(bytes));
    places.map(move |(at, _)| Svma(start.0.wrapping_add(at as u64)))
}

/// The activations of a function, given by its parts: sorted and disjoint. The code behind the calls isn't in them, but for a
/// jump that leads there.
pub(crate) fn activations(parts: &[CodePart], table: Svma, current_frame: u16) -> Vec<Activation> {
    let (mut code, mut calls) = (BTreeMap::new(), BTreeSet::new());
    for start in links(parts, current_frame) {
        let before = Reached::from(parts, &[start], current_frame, Some(table));
        if !before.returns.is_empty() {
            let after = Reached::from(parts, &before.returns, current_frame, None);
            code.extend(before.code.into_iter().filter(|(at, _)| !after.code.contains_key(at)));
            calls.extend(before.returns);
        }
    }
    let mut found: Vec<Activation> = Vec::new();
    for (start, end) in code {
        let has_call = calls.contains(&end);
        match found.last_mut() {
            Some(last) if start.saturating_sub(last.code.end) <= JUMP_BYTES_MAX => {
                last.code.end = last.code.end.max(end);
                last.has_call |= has_call;
            }
            _ => found.push(Activation { code: start..end, has_call }),
        }
    }
    found
}

/// The addresses behind each store of a register into the field.
fn links(parts: &[CodePart], current_frame: u16) -> Vec<u64> {
    let instructions = parts.iter().flat_map(|(start, code)| {
        iced_x86::Decoder::with_ip(64, code, *start, DecoderOptions::NONE).into_iter()
    });
    let links = instructions.filter(|instruction| stored(instruction, current_frame).is_some());
    links.map(|instruction| instruction.next_ip()).collect()
}

/// Code that is executed behind some places, before a frame becomes the current one.
#[derive(Default)]
struct Reached {
    /// The instructions: where each starts, and where it ends.
    code: BTreeMap<u64, u64>,
    /// Where the calls through the table, beyond which nothing is followed, return to.
    returns: Vec<u64>,
}

impl Reached {
    fn from(parts: &[CodePart], places: &[u64], current_frame: u16, table: Option<Svma>) -> Self {
        let mut reached = Self::default();
        let mut called_directly = BTreeSet::new();
        let mut open = places.to_vec();
        while let Some(at) = open.pop() {
            let Some(instruction) = decoder(parts, at).and_then(|mut decoder| decoder.iter().next()) else {
                continue;
            };
            let is_known = reached.code.contains_key(&at) || reached.code.len() >= INSTRUCTIONS_MAX;
            if is_known || instruction.is_invalid() || stored(&instruction, current_frame).is_some() {
                continue;
            }
            let next = instruction.next_ip();
            reached.code.insert(at, next);
            if let Some(table) = table {
                called_directly.extend(promoted(&instruction, table));
                let is_direct =
                    instruction.is_call_near() && called_directly.contains(&instruction.near_branch_target());
                let is_through_table =
                    instruction.is_call_near_indirect() && table_of(&instruction) == Some(table);
                if is_direct || is_through_table {
                    reached.returns.push(next);
                    continue;
                }
            }
            let is_direct_jump = instruction.is_jmp_short_or_near();
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch if is_direct_jump => {
                    open.push(instruction.near_branch_target());
                }
                // What follows comes first: it has the comparisons.
                FlowControl::ConditionalBranch => open.extend([instruction.near_branch_target(), next]),
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => open.push(next),
                _ => {}
            }
        }
        reached
    }
}

/// The table of which an instruction uses an entry, whose number is in a register.
fn table_of(instruction: &Instruction) -> Option<Svma> {
    let is_entry = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == Register::None
        && instruction.memory_index() != Register::None
        && instruction.memory_index_scale() == ENTRY_BYTES
        && instruction.segment_prefix() == Register::None;
    is_entry.then(|| Svma(instruction.memory_displacement64()))
}

/// The function that the table's entry is compared with.
fn promoted(instruction: &Instruction, table: Svma) -> Option<u64> {
    let is_comparison = instruction.mnemonic() == Mnemonic::Cmp
        && table_of(instruction) == Some(table)
        && instruction.op1_kind() == OpKind::Immediate32to64;
    is_comparison.then(|| instruction.immediate(1))
}
