//! Object files as processes keep them in memory for debuggers.

use object::{Object as _, ObjectSection as _};
use proptest::prelude::*;
use sidewinder_symbolize::JitSymbols;

use crate::lines::runs;

/// The address of the code according to the file.
const CODE: u64 = 0x7f12_3456_0000;

const SOURCE: &str = "
__attribute__((noinline)) int one(int x) { return x * 3 + 1; }
int two(int x) { return one(x) + 2; }
__asm__(\".text\\n.type bare, @function\\nbare: nop\\nnop\\n.type last, @function\\nlast: nop\\n\");
";

/// The function's name, its start, and its length, if known.
type Function = (String, u64, u64);

/// An object file whose text is at [`CODE`], as a JIT compiler leaves it, and the locations of its functions.
fn object_file() -> Option<(Vec<u8>, Vec<Function>)> {
    use object::ObjectSymbol as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("made.c"), SOURCE).unwrap();
    if !runs(folder.path(), &["cc", "-O2", "-c", "-o", "made.o", "made.c"]) {
        return None;
    }
    let mut bytes = std::fs::read(folder.path().join("made.o")).unwrap();
    let (address_at, functions) = {
        let file = object::File::parse(&*bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
        let named = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let functions =
            named.map(|symbol| (symbol.name().unwrap().to_owned(), CODE + symbol.address(), symbol.size()));
        assert!(text.size() > 0);
        (headers as usize + text.index().0 * 64 + 16, functions.collect())
    };
    bytes[address_at..address_at + 8].copy_from_slice(&CODE.to_le_bytes());
    Some((bytes, functions))
}

#[test]
fn functions_are_named_where_their_section_is() {
    let Some((file, functions)) = object_file() else { return };
    let mut symbols = JitSymbols::new(1 << 20);
    symbols.add(&file);
    for (name, start, bytes) in &functions {
        assert_eq!(symbols.lookup(*start), Some(&**name));
        assert_eq!(symbols.lookup(start + bytes.saturating_sub(1)), Some(&**name));
    }
    let start_of = |wanted: &str| functions.iter().find(|(name, ..)| name == wanted).unwrap().1;
    assert_eq!(symbols.lookup(start_of("bare") + 1), Some("bare"), "it has no size");
    let end = functions.iter().map(|(_, start, bytes)| start + bytes.max(&1)).max().unwrap();
    assert_eq!(symbols.lookup(end + 4096), None, "its section has ended");
    assert_eq!((symbols.lookup(CODE - 1), symbols.cut()), (None, 0));
    symbols.clear();
    assert_eq!((symbols.lookup(CODE), symbols.heap_bytes()), (None, 0));
}

#[test]
fn files_that_are_none_and_functions_without_room_are_counted() {
    let Some((file, functions)) = object_file() else { return };
    let mut symbols = JitSymbols::new(0);
    symbols.add(&file);
    assert_eq!(symbols.cut(), functions.len() as u64);
    symbols.add(b"\x7fELF");
    symbols.add(b"");
    assert_eq!(symbols.cut(), functions.len() as u64 + 2);
}

#[test]
fn any_change_of_a_file_is_survived() {
    let Some((file, _)) = object_file() else { return };
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 1_usize..9), 1..8);
    proptest!(|(changes in changes)| {
        let mut bytes = file.clone();
        for (at, value, width) in changes {
            let at = at.index(bytes.len());
            bytes.iter_mut().skip(at).zip(value.to_le_bytes()).take(width).for_each(|(to, from)| *to = from);
        }
        let mut symbols = JitSymbols::new(256);
        symbols.add(&bytes);
        prop_assert!(symbols.heap_bytes() <= 256);
    });
}
