//! Files with more symbols than fit in memory: only a part of them is held, and results are the same.

use proptest::prelude::*;
use sidewinder_address::Svma;
use sidewinder_symbolize::{BinaryId, Lookup, SymbolTable, Symbolizer, SymbolizerOptions};

use crate::elf::{FUNC, GLOBAL, LOCAL, Made, MadeStub, NOTYPE, TEXT, elf_of_text};

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

/// Starts and lengths are often multiples of this, so that symbols share starts and ends.
const SHARED_BYTES: u64 = 512;
/// The start of the stubs, which follow each other in places for so many.
const STUBS: u64 = CODE_BYTES / 2;
const STUB_PLACES: u64 = 2048;
const STUB_BYTES: u64 = 16;

/// The start, length and type of each of a file's symbols.
fn symbols() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    let shared = |bytes: u64| (0..bytes / SHARED_BYTES).prop_map(|number| number * SHARED_BYTES);
    let start = prop_oneof![0..CODE_BYTES, shared(CODE_BYTES)];
    let size = prop_oneof![
        8 => 1..600_u64,
        4 => Just(0),
        4 => shared(16 * SHARED_BYTES),
        2 => 1..10_000_u64,
        1 => 1..CODE_BYTES,
    ];
    prop::collection::vec((start, size, 0..4_u8), 1500..2500)
}

/// An address that is looked up, by the symbol or stub that it is at an edge of.
#[derive(Clone, Copy, Debug)]
enum Address {
    Start,
    BeforeStart,
    End,
    BeforeEnd,
    Any,
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        Just(Address::Start),
        Just(Address::BeforeStart),
        Just(Address::End),
        Just(Address::BeforeEnd),
        Just(Address::Any)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn names_are_the_same_whether_there_is_room_for_all_symbols_or_not(
        symbols in symbols(),
        stubs in prop::collection::btree_set(0..STUB_PLACES, 0..500),
        addresses in prop::collection::vec((address(), any::<prop::sample::Index>()), 300),
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
        let dynamic = made(true);
        let stubs: Vec<_> = stubs.iter().map(|place| STUBS + place * STUB_BYTES).collect();
        let functions = (0..dynamic.len() as u32).cycle();
        let made_stubs: Vec<_> = stubs.iter().zip(functions).map(|(start, number)| MadeStub(*start, number)).collect();
        let file = elf_of_text(CODE_BYTES, &made(false), &dynamic, &made_stubs, "");
        let of_stubs = stubs.iter().map(|start| (*start, STUB_BYTES));
        let ranges: Vec<_> = symbols.iter().map(|(start, size, _)| (*start, *size)).chain(of_stubs).collect();
        let address = |(address, index): &(Address, prop::sample::Index)| {
            let (start, size) = *index.get(&ranges);
            let at = match address {
                Address::Start => start,
                Address::BeforeStart => start.saturating_sub(1),
                Address::End => start + size,
                Address::BeforeEnd => (start + size).saturating_sub(1),
                Address::Any => index.index(CODE_BYTES as usize) as u64,
            };
            at.min(CODE_BYTES - 1)
        };
        let addresses: Vec<_> = addresses.iter().map(address).collect();
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

/// Checks the name at an address of a file that has these symbols and stubs in its first half, with room for all symbols and
/// without.
#[track_caller]
fn assert_name(full: &[Made<'_>], dynamic: &[Made<'_>], stubs: &[MadeStub], at: u64, expected: Option<&str>) {
    let others =
        (CODE_BYTES / 2..CODE_BYTES).step_by(128).map(|start| Made(GLOBAL, FUNC, "other", start, 128));
    let full: Vec<_> = others.chain(full.iter().copied()).collect();
    let file = elf_of_text(CODE_BYTES, &full, dynamic, stubs, "");
    for budget_bytes in [8 << 20, 32 << 10] {
        let found = symbolizer(budget_bytes, true).name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at));
        assert_eq!(said(found).as_deref(), expected, "at {at:#x}, with {budget_bytes} bytes");
    }
}

/// The start of one of the parts that the file of [`assert_name`] is divided into.
const PART: u64 = 0x10_000;

/// A dynamic symbol hides no other of its start.
#[test]
fn a_dynamic_symbol_reaches_a_part_that_another_of_its_start_ends_before() {
    let [short, unsized_] = [16, 0].map(|size| Made(GLOBAL, FUNC, "short", PART - 64, size));
    let long = Made(GLOBAL, FUNC, "long", PART - 64, 128);
    for (other, hides_it) in [(short, None), (unsized_, Some("short"))] {
        assert_name(&[], &[other, long], &[], PART + 8, Some("long"));
        assert_name(&[], &[long, other], &[], PART + 8, Some("long"));
        assert_name(&[other], &[long], &[], PART + 8, hides_it);
    }
}

/// A function is found behind all those that it contains.
#[test]
fn a_function_is_named_behind_any_number_of_inner_ones() {
    let inner = (0..500).map(|number| Made(GLOBAL, FUNC, "inner", 64 + number * 16, 16));
    let symbols: Vec<_> = inner.chain([Made(GLOBAL, FUNC, "outer", 0, CODE_BYTES / 4)]).collect();
    assert_name(&symbols, &[], &[], 72, Some("inner"));
    assert_name(&symbols, &[], &[], 64 + 500 * 16, Some("outer"));
    assert_name(&symbols, &[], &[], CODE_BYTES / 8, Some("outer"));
}

/// Stubs are symbols as all others at the border of a part.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_stub_before_a_part_decides_about_addresses_in_it() {
    let callee = Made(GLOBAL, FUNC, "callee", 64, 16);
    let before = Made(GLOBAL, NOTYPE, "before", PART - 128, 0);
    let stub = |start| [MadeStub(start, 0)];
    assert_name(&[], &[callee], &stub(PART - 8), PART, Some("callee@plt"));
    assert_name(&[Made(GLOBAL, FUNC, "own", PART - 8, 4)], &[callee], &stub(PART - 8), PART, None);
    assert_name(&[], &[callee, Made(GLOBAL, FUNC, "own", PART - 8, 4)], &stub(PART - 8), PART, None);
    assert_name(&[before], &[callee], &stub(PART - 64), PART + 8, None);
    assert_name(&[before], &[callee], &stub(PART - 256), PART + 8, Some("before"));
}

/// The full table decides for an address at which it has a symbol, even one that ends before the requested part.
#[test]
fn a_dynamic_symbol_names_nothing_where_the_full_table_has_a_shorter_one() {
    let names: Vec<_> = (0..4000).map(|number| format!("f{number}")).collect();
    let mut full: Vec<_> =
        names.iter().zip(0..).map(|(name, number)| Made(GLOBAL, FUNC, name, number * 256, 16)).collect();
    full.push(Made(GLOBAL, FUNC, "outer", 64, CODE_BYTES - 64));
    let file = elf_of_text(CODE_BYTES, &full, &[Made(GLOBAL, FUNC, "long", 256, CODE_BYTES - 256)], &[], "");
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
    let file = elf_of_text(CODE_BYTES, &symbols, &[], &[], "");
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
    let file = elf_of_text(CODE_BYTES, &symbols, &[], &[], "");
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
        let file = elf_of_text(CODE_BYTES, &symbols, &[], &[], "");
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
    let file = elf_of_text(CODE_BYTES, &symbols, &[], &[], "");
    for order in [[1000, 70, 1001], [70, 1000, 71]] {
        let mut symbolizer = symbolizer(8 << 20, true);
        for at in order {
            let found = said(symbolizer.name(BinaryId(1), || Ok(file.clone()), Svma(TEXT + at)));
            assert_eq!(found.as_deref(), Some(if at < 64 + 512 { "head" } else { "whole" }), "at {at}");
        }
    }
}
