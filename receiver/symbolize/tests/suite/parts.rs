//! Files with more symbols than fit in memory: only a part of them is held, and results are the same.

use proptest::prelude::*;
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryId, Lookup, SymbolTable, Symbolizer, SymbolizerOptions};

use crate::elf::{FUNC, GLOBAL, LOCAL, Made, NOTYPE, TEXT, elf_of_text};

const CODE_BYTES: u64 = 1 << 20;

fn symbolizer(budget_bytes: usize, is_patient: bool) -> Symbolizer {
    Symbolizer::new(SymbolizerOptions {
        budget_bytes,
        lines: false,
        inlines: false,
        has_no_time_limit: is_patient,
    })
}

fn said(lookup: Lookup) -> Option<String> {
    match lookup {
        Lookup::Named(frames) => Some(frames[0].name.system_name.to_string()),
        Lookup::Unnamed { .. } => None,
    }
}

/// The start, length and type of each of a file's symbols.
fn symbols() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    let size = prop_oneof![4 => 1..600_u64, 1 => Just(0), 1 => 1..10_000_u64];
    prop::collection::vec((0..CODE_BYTES, size, 0..4_u8), 1500..2500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn names_are_the_same_whether_there_is_room_for_all_symbols_or_not(
        symbols in symbols(),
        addresses in prop::collection::vec(0..CODE_BYTES, 300),
    ) {
        let names: Vec<_> = (0..symbols.len()).map(|number| format!("f{number}")).collect();
        let made = |is_dynamic: bool| -> Vec<_> {
            let of_table = symbols.iter().zip(&names).filter(|((_, _, sort), _)| (*sort == 3) == is_dynamic);
            of_table
                .map(|((start, size, sort), name)| match (sort, size) {
                    (_, 0) => Made(GLOBAL, NOTYPE, name, *start, 0),
                    (0, _) => Made(LOCAL, FUNC, name, *start, *size),
                    _ => Made(GLOBAL, FUNC, name, *start, *size),
                })
                .collect()
        };
        let file = elf_of_text(CODE_BYTES, &made(false), &made(true), "");
        let (mut roomy, mut narrow) = (symbolizer(8 << 20, true), symbolizer(32 << 10, true));
        for at in addresses.iter().copied() {
            let look_up = |symbolizer: &mut Symbolizer| {
                said(symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at)))
            };
            prop_assert_eq!(look_up(&mut narrow), look_up(&mut roomy), "at {:#x}", at);
            prop_assert!(narrow.held_bytes() <= 32 << 10);
        }
        prop_assert_eq!((narrow.stats().symbols_left_out, narrow.stats().symbol_tables_reads), (0, 1));
        let mut svmas: Vec<_> = addresses.iter().map(|at| Svma(TEXT + at)).collect();
        svmas.sort_unstable();
        let mut together = symbolizer(32 << 10, true);
        let mut found = vec![None; svmas.len()];
        let content = || Ok(file.clone());
        together.name_all(BinaryId(1), content, &svmas, |number, lookup| found[number] = Some(said(lookup)));
        for (svma, found) in svmas.iter().zip(found) {
            prop_assert_eq!(found, Some(said(roomy.name(BinaryId(1), content, *svma))), "together, at {:?}", svma);
        }
        prop_assert!(together.held_bytes() <= 32 << 10);
    }
}

/// The full table decides for an address at which it has a symbol, even one that ends before the requested part.
#[test]
fn a_dynamic_symbol_names_nothing_where_the_full_table_has_a_shorter_one() {
    let names: Vec<_> = (0..4000).map(|number| format!("f{number}")).collect();
    let mut full: Vec<_> =
        names.iter().zip(0..).map(|(name, number)| Made(GLOBAL, FUNC, name, number * 256, 16)).collect();
    full.push(Made(GLOBAL, FUNC, "outer", 64, CODE_BYTES - 64));
    let file = elf_of_text(CODE_BYTES, &full, &[Made(GLOBAL, FUNC, "long", 256, CODE_BYTES - 256)], "");
    for budget_bytes in [8 << 20, 32 << 10] {
        let mut symbolizer = symbolizer(budget_bytes, true);
        for at in [300, CODE_BYTES / 2 + 100, CODE_BYTES - 100] {
            let found = said(symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at)));
            assert_ne!(found.as_deref(), Some("long"), "at {at:#x} of {budget_bytes} bytes");
        }
    }
}

/// A part that is requested again is still loaded, and one that was replaced is read again.
#[test]
fn parts_make_room_for_others() {
    let names: Vec<_> = (0..4000).map(|number| format!("f{number}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, number)| Made(GLOBAL, FUNC, name, number * 256, 256)).collect();
    let file = elf_of_text(CODE_BYTES, &symbols, &[], "");
    let mut symbolizer = symbolizer(32 << 10, true);
    for _ in 0..2 {
        for (number, name) in names.iter().enumerate() {
            let at = Svma(TEXT + number as u64 * 256 + 7);
            let found = said(symbolizer.name(BinaryId(1), || Ok(file.clone()), at));
            assert_eq!(found.as_ref(), Some(name));
        }
    }
    assert!(symbolizer.held_bytes() <= 32 << 10);
}

#[test]
fn a_smaller_budget_evicts_and_names_stay_the_same() {
    let names: Vec<_> = (0..400).map(|number| format!("f{number}")).collect();
    let symbols: Vec<_> =
        names.iter().zip(0..).map(|(name, number)| Made(GLOBAL, FUNC, name, number * 256, 256)).collect();
    let file = elf_of_text(CODE_BYTES, &symbols, &[], "");
    let mut symbolizer = symbolizer(1 << 20, true);
    let mut held = Vec::new();
    for (round, budget_bytes) in (0..).zip([1 << 20, 48 << 10, 32 << 10, 1 << 20]) {
        symbolizer.set_budget_bytes(budget_bytes);
        assert_eq!(symbolizer.budget_bytes(), budget_bytes);
        assert!(symbolizer.held_bytes() <= budget_bytes, "before anything else is named");
        // Files that were read before are read again only for a share of the time.
        for binary in 8 * round..8 * round + 8 {
            for (number, name) in names.iter().enumerate() {
                let at = Svma(TEXT + number as u64 * 256 + 7);
                let found = said(symbolizer.name(BinaryId(binary), || Ok(file.clone()), at));
                assert_eq!(found.as_ref(), Some(name));
            }
        }
        assert!(symbolizer.held_bytes() <= budget_bytes);
        held.push(symbolizer.held_bytes());
    }
    assert!(held[0] > 48 << 10 && held[3] > 48 << 10, "{held:?}");
}

/// A symbol without a size that lies before a part extends into it, even if the part's own symbols fill the room that
/// other parts leave.
#[test]
fn a_part_that_fills_the_room_is_reached_from_before() {
    const BUDGET_BYTES: usize = 32 << 10;
    const FIRST: u64 = CODE_BYTES / 4;
    const SECOND: u64 = CODE_BYTES / 2;
    let room = BUDGET_BYTES as u64 / SymbolTable::BYTES_PER_SYMBOL as u64;
    for in_first in 1..room / 6 {
        let first = (0..in_first).map(|number| FIRST + number);
        let second = (0..room / 6).map(|number| SECOND + 8 + number);
        let elsewhere = (0..room).map(|number| CODE_BYTES - room + number);
        let sized = first.chain(second).chain(elsewhere).map(|start| Made(GLOBAL, FUNC, "sized", start, 1));
        let symbols: Vec<_> = sized.chain([Made(GLOBAL, NOTYPE, "before", SECOND - (32 << 10), 0)]).collect();
        let file = elf_of_text(CODE_BYTES, &symbols, &[], "");
        let mut symbolizer = symbolizer(BUDGET_BYTES, true);
        let mut name = |at| said(symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at)));
        assert_eq!(name(FIRST).as_deref(), Some("sized"));
        assert_eq!(name(SECOND).as_deref(), Some("before"), "{in_first} symbols in the first part");
    }
}

/// The result for one address doesn't apply to another that fewer of the symbols reach.
#[test]
fn symbols_of_one_start_name_what_they_reach() {
    let symbols = [Made(LOCAL, FUNC, "whole", 64, 4096), Made(GLOBAL, FUNC, "head", 64, 512)];
    let file = elf_of_text(CODE_BYTES, &symbols, &[], "");
    for order in [[1000, 70, 1001], [70, 1000, 71]] {
        let mut symbolizer = symbolizer(8 << 20, true);
        for at in order {
            let found = said(symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at)));
            assert_eq!(found.as_deref(), Some(if at < 64 + 512 { "head" } else { "whole" }), "at {at}");
        }
    }
}
