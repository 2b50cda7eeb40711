use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::layout::ObjectHead;
use super::*;

const CODE: Avma = Avma(0x10_000);
const NAME: u64 = 0x20_000;
const PATH: u64 = 0x30_000;
const LINES: u64 = 0x40_000;
/// The head of an object with one reference.
const LIVE: [u8; 32] = {
    let mut head = [0; 32];
    head[0] = 1;
    head
};
const CODE_TYPE_AT: u64 = 0x50_000;
const CODE_TYPE_NAME: u64 = 0x60_000;

/// Objects by address, each alone in its memory. The code object's first line changes after some reads.
#[derive(Clone)]
struct Objects {
    objects: BTreeMap<u64, Vec<u8>>,
    reads: Cell<u32>,
    changes_after: u32,
}

impl ForeignMemory for Objects {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (start, object) = self.objects.range(..=at.0).next_back().ok_or_else(missing)?;
        let from = usize::try_from(at.0 - start).unwrap();
        let end = from.checked_add(to.len()).ok_or_else(missing)?;
        to.copy_from_slice(object.get(from..end).ok_or_else(missing)?);
        self.reads.set(self.reads.get() + 1);
        if self.reads.get() > self.changes_after && *start == CODE.0 {
            to[usize::from(layout().identity.0) - from] ^= 1;
        }
        Ok(())
    }
}

fn layout() -> Layout {
    Layout::of_minor(12).unwrap()
}

/// A `str` of the narrowest kind, or of a wider one.
fn text(characters: &[u32], least_kind: u32) -> Vec<u8> {
    let widest = characters.iter().copied().max().unwrap_or(0);
    let kind = least_kind.max(if widest < 0x100 {
        1
    } else if widest < 0x1_0000 {
        2
    } else {
        4
    });
    let is_ascii = widest < 0x80 && kind == 1;
    let mut object = vec![0xaa; 16];
    object.extend((characters.len() as u64).to_le_bytes());
    object.extend([0xbb; 8]);
    let state = 1 | kind << 2 | 1 << 5 | u32::from(is_ascii) << 6 | 1 << 7;
    object.extend(state.to_le_bytes());
    object.extend([0xcc; 4]);
    if !is_ascii {
        object.extend([0xdd; 16]);
    }
    for character in characters {
        object.extend(&character.to_le_bytes()[..kind as usize]);
    }
    // The terminator.
    object.extend(vec![0; kind as usize]);
    object
}

fn text_of(string: &str) -> Vec<u8> {
    text(&string.chars().map(u32::from).collect::<Vec<_>>(), 1)
}

fn bytes_of(content: &[u8]) -> Vec<u8> {
    let head = [&[0xaa; 16][..], &(content.len() as u64).to_le_bytes(), &[0xbb; 8]].concat();
    [&head, content, &[0]].concat()
}

fn objects(name: Vec<u8>, path: Vec<u8>, lines: &[u8]) -> Objects {
    let mut code = vec![0xee; 208];
    let mut put = |at: u16, word: &[u8]| code[at.into()..][..word.len()].copy_from_slice(word);
    let names = layout().names;
    put(0, &1_u64.to_le_bytes());
    put(names.head.type_pointer(), &CODE_TYPE_AT.to_le_bytes());
    put(names.name, &NAME.to_le_bytes());
    put(names.path, &PATH.to_le_bytes());
    put(names.line_table, &LINES.to_le_bytes());
    put(names.first_line, &7_i32.to_le_bytes());
    let of_type = [vec![0; names.head.type_name().into()], CODE_TYPE_NAME.to_le_bytes().into()].concat();
    let objects = [
        (CODE.0, code),
        (NAME, name),
        (PATH, path),
        (LINES, bytes_of(lines)),
        (CODE_TYPE_AT, of_type),
        (CODE_TYPE_NAME, CODE_TYPE.to_vec()),
    ]
    .into();
    Objects { objects, reads: Cell::new(0), changes_after: u32::MAX }
}

fn cookie_of(memory: &Objects) -> u32 {
    let (start, bytes) = layout().identity;
    hash_identity(&memory.objects[&CODE.0][start.into()..][..bytes.into()], None)
}

fn read(memory: &Objects) -> Result<Function, FunctionError> {
    layout().read_function(memory, CODE, cookie_of(memory))
}

#[test]
fn strings_of_all_kinds_are_read_to_the_end_of_their_memory() {
    for string in ["", "f", "größe", "变量", "𠀀 and more", &"long".repeat(100), &"längér".repeat(50)]
    {
        let memory = objects(text_of(string), text_of("/a/file.py"), &[0x80, 0, 0xd9, 2]);
        let function = read(&memory).unwrap();
        assert_eq!((&*function.name(), function.path()), (string, "/a/file.py"));
        assert_eq!(function.first_line, 7);
        assert_eq!([0, 2, 3, 6].map(|place| function.line_at(place)), [Some(7), Some(8), Some(8), None]);
        assert_eq!(function.line_at(-2_i32 as u32), Some(7));
    }
}

#[test]
fn few_calls_are_made() {
    // Where more memory follows, as on a heap, each object takes one.
    let padded = |mut object: Vec<u8>| {
        object.resize(512, 0);
        object
    };
    let mut memory = objects(padded(text_of("name")), padded(text_of("/a/file.py")), &[]);
    memory.objects.get_mut(&LINES).unwrap().resize(512, 0);
    read(&memory).unwrap();
    assert_eq!(memory.reads.get(), 7);
}

#[test]
fn long_strings_are_cut_between_characters() {
    for unit in ["x", "é", "变", "𠀀"] {
        let memory = objects(text_of(&unit.repeat(5000)), text_of(&unit.repeat(5000)), &[]);
        let function = read(&memory).unwrap();
        assert!(function.name().len() <= 1024 && function.name().len() > 1000, "{}", function.name().len());
        assert!(function.path().len() <= 4096 && function.path().len() > 4000, "{}", function.path().len());
        assert!(function.name().chars().all(|character| unit.starts_with(character)));
        assert!(function.heap_bytes() >= function.name().len());
    }
}

#[test]
fn characters_that_are_none_are_replaced() {
    let memory = objects(text(&[0x61, 0xdcff, 0x62], 2), text(&[0x2f, 0x11_0000, 0xffff_ffff], 4), &[]);
    let function = read(&memory).unwrap();
    assert_eq!((&*function.name(), function.path()), ("a\u{fffd}b", "/\u{fffd}\u{fffd}"));
}

#[test]
fn no_name_has_a_nul() {
    let named = |name: &str| read(&objects(text_of(name), text_of("/a.py"), &[]));
    assert!(named("name").is_ok());
    for name in ["\0name", "na\0me", "name\0", "\u{3b1}\0"] {
        assert!(matches!(named(name), Err(FunctionError::Malformed(_))), "{name:?}");
    }
}

#[test]
fn a_code_object_that_changes_is_not_read() {
    let memory = objects(text_of("name"), text_of("/a/file.py"), &[]);
    let other = layout().read_function(&memory, CODE, cookie_of(&memory) ^ 1);
    assert!(matches!(other, Err(FunctionError::Replaced)), "{other:?}");
    for changes_after in [0, 1, 2, 4] {
        let memory = Objects { changes_after, ..objects(text_of("name"), text_of("/a/file.py"), &[]) };
        assert!(matches!(read(&memory), Err(FunctionError::Replaced)), "{changes_after}");
    }
    // What it referred to is gone, because it is gone itself.
    let mut memory = Objects { changes_after: 1, ..objects(text_of("name"), text_of("/a/file.py"), &[]) };
    memory.objects.insert(NAME, vec![0xff; 300]);
    assert!(matches!(read(&memory), Err(FunctionError::Replaced)));
}

/// Until 3.11, two functions may differ in nothing but what their name or their path says.
#[test]
fn a_cookie_depends_on_the_texts_if_code_objects_have_no_number() {
    let layout = Layout::of_minor(11).unwrap();
    let string = |text: &str| {
        let mut object = text_of(text);
        // What 3.12 dropped: another form of the string.
        object.splice(40..40, [0xaa; 8]);
        if !text.is_ascii() {
            object.splice(64..64, [0xaa; 8]);
        }
        object.resize(512, 0xaa);
        object
    };
    let cookies_of = |name: &str, path: &str| {
        let memory = objects(string(name), string(path), &[]);
        let identity = &memory.objects[&CODE.0][layout.identity.0.into()..];
        let start = |at: u64| &memory.objects[&at][..256];
        let copy = CodeCopy { head: &LIVE, identity, name: start(NAME), path: start(PATH), lines: &[] };
        let cookie = layout.read_cookie(&memory, CODE).unwrap();
        assert_eq!(layout.copied_cookie(copy), Some(cookie), "{name}, {path}");
        assert_eq!(layout.copied_cookie(CodeCopy { name: &copy.name[..40], ..copy }), None, "cut");
        assert_eq!(&*layout.read_function(&memory, CODE, cookie).unwrap().name(), name);
        cookie
    };
    let long = |end: &str| "x".repeat(200) + end;
    let names = ["f", "g", "ff", "größe", "grüße", "变量", "变化", &long("12345678"), &long("12345679")];
    let mut cookies: Vec<u32> = names.iter().map(|name| cookies_of(name, "/a/file.py")).collect();
    cookies.extend(names.iter().map(|path| cookies_of("name", path)));
    let count = cookies.len();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), count);
}

/// The copy that the programs make of the code object: up to so many bytes of each object.
fn copied(memory: &Objects, most: usize) -> Result<Function, FunctionError> {
    let start = |at: u64| memory.objects[&at].get(..most).unwrap_or(&memory.objects[&at]);
    let identity = &memory.objects[&CODE.0][layout().identity.0.into()..];
    let copy = CodeCopy { head: &LIVE, identity, name: start(NAME), path: start(PATH), lines: start(LINES) };
    layout().copied_function(copy, cookie_of(memory))
}

#[test]
fn a_copy_gives_the_same_function() {
    let table = [0x80, 0, 0xd9, 2];
    for string in ["f", "größe", "变量", "𠀀 and more"] {
        // More memory follows the objects, as on a heap.
        let mut memory = objects(text_of(string), text_of("/a/file.py"), &table);
        for at in [NAME, PATH, LINES] {
            memory.objects.get_mut(&at).unwrap().resize(256, 0);
        }
        assert_eq!(copied(&memory, 256).unwrap(), read(&memory).unwrap());
    }
}

#[test]
fn a_copy_that_ends_early_has_the_first_line_and_the_start_of_strings() {
    let memory = objects(text_of(&"变".repeat(100)), text_of("/a/file.py"), &[0x80; 200]);
    let function = copied(&memory, 128).unwrap();
    assert_eq!((&*function.name(), function.path()), ("变".repeat(24).as_str(), "/a/file.py"));
    assert!(!function.has_lines());
    assert_eq!([0, 2, 1000].map(|place| function.line_at(place)), [Some(7); 3]);
    assert!(matches!(copied(&memory, 0), Err(FunctionError::Unreadable(_))), "nothing could be copied");
    let identity = &memory.objects[&CODE.0][layout().identity.0.into()..];
    let copy = CodeCopy { head: &LIVE, identity, name: &[], path: &[], lines: &[] };
    let other = layout().copied_function(copy, cookie_of(&memory) ^ 1);
    assert!(matches!(other, Err(FunctionError::Replaced)), "{other:?}");
    let freed = CodeCopy { head: &[0; 32], ..copy };
    let freed = layout().copied_function(freed, cookie_of(&memory));
    assert!(matches!(freed, Err(FunctionError::Replaced)), "{freed:?}");
    let short = CodeCopy { identity: &identity[..8], ..copy };
    assert!(matches!(layout().copied_function(short, cookie_of(&memory)), Err(FunctionError::Replaced)));
}

proptest! {
    #[test]
    fn any_copy_gives_a_function_or_an_error(
        mut identity in prop::collection::vec(any::<u8>(), 96..=96),
        name in prop::collection::vec(any::<u8>(), 0..128),
        path in prop::collection::vec(any::<u8>(), 0..256),
        lines in prop::collection::vec(any::<u8>(), 0..480),
        are_equal: bool,
    ) {
        let Layout { names, identity: (start, _), .. } = layout();
        if are_equal {
            let from = |at: u16| usize::from(at - start);
            let same = identity[from(names.name)..][..8].to_vec();
            identity[from(names.path)..][..8].copy_from_slice(&same);
            identity[from(names.line_table)..][..8].copy_from_slice(&same);
        }
        let copy = CodeCopy { head: &LIVE, identity: &identity, name: &name, path: &path, lines: &lines };
        if let Ok(function) = layout().copied_function(copy, hash_identity(&identity, None)) {
            prop_assert!(function.name().len() <= 128 && function.path().len() <= 256);
        }
    }
}

/// Its memory has the same content, but for the word in which allocators link free blocks.
#[test]
fn a_code_object_that_was_freed_is_not_read() {
    let with_first_word = |word: u64| {
        let mut memory = objects(text_of("name"), text_of("/a/file.py"), &[]);
        memory.objects.get_mut(&CODE.0).unwrap()[..8].copy_from_slice(&word.to_le_bytes());
        read(&memory)
    };
    for next_free in [0, 0x7f12_3456_7890, 0x5_5d1a_2b3c] {
        let freed = with_first_word(next_free);
        assert!(matches!(freed, Err(FunctionError::Replaced)), "{next_free:#x}: {freed:?}");
    }
    // In a heap below 4 GiB, the next free block looks like a count.
    let mut memory = objects(text_of("name"), text_of("/a/file.py"), &[]);
    for previous_free in [0, 0x20f_d780, CODE_TYPE_NAME] {
        let code = memory.objects.get_mut(&CODE.0).unwrap();
        code[..8].copy_from_slice(&0x20f_d780_u64.to_le_bytes());
        code[layout().names.head.type_pointer().into()..][..8].copy_from_slice(&previous_free.to_le_bytes());
        assert!(matches!(read(&memory), Err(FunctionError::Replaced)), "{previous_free:#x}");
    }
    for references in [1, 77, u64::from(u32::MAX), 0x0001_0000_c000_0000] {
        with_first_word(references).unwrap();
    }
}

/// The first word of an object of a build without the lock is its owner's thread, or links free blocks.
#[test]
fn a_freed_object_of_a_build_without_the_lock_is_told_by_its_counts() {
    let is_live = |local: u32, shared: i64| {
        let head = [&[0x7f; 12][..], &local.to_le_bytes(), &shared.to_le_bytes()].concat();
        ObjectHead::FreeThreaded.is_live(&head)
    };
    assert!(is_live(1, 0) && is_live(u32::MAX, 0) && is_live(0, 1 << 2) && is_live(0, -4));
    // Neither its state, merged or queued to be merged, is a reference.
    assert!(!is_live(0, 0) && !is_live(0, 3));
    assert!(!ObjectHead::FreeThreaded.is_live(&[1; 8]));
}

#[test]
fn internal_code_is_told_from_functions() {
    let made = |name: &str, path: &str, line: i32| {
        let mut memory = objects(text_of(name), text_of(path), &[]);
        let at = usize::from(layout().names.first_line);
        memory.objects.get_mut(&CODE.0).unwrap()[at..][..4].copy_from_slice(&line.to_le_bytes());
        read(&memory).unwrap().is_internal()
    };
    assert!(made("__init__", "__init__", 0));
    assert!(!made("__init__", "/a/file.py", 0) && !made("main", "main", 1));
}

#[test]
fn other_objects_are_an_error() {
    let with = |at: usize, value: u8| {
        let mut name = text_of("name");
        name[at] = value;
        objects(name, text_of("path"), &[])
    };
    for (what, memory) in [
        ("not compact", with(32, 1 << 2)),
        ("no kind", with(32, 1 << 5)),
        ("ASCII of two bytes", with(32, 2 << 2 | 1 << 5 | 1 << 6)),
        ("endless", with(23, 0x7f)),
        ("of negative length", with(23, 0xff)),
    ] {
        let failure = read(&memory);
        assert!(matches!(failure, Err(FunctionError::Malformed(_))), "{what}: {failure:?}");
    }
    // Longer than its memory.
    assert!(matches!(read(&with(17, 1)), Err(FunctionError::Unreadable(_))));
    let nowhere = layout().read_function(&objects(vec![], vec![], &[]), Avma(0), 1);
    assert!(matches!(nowhere, Err(FunctionError::Unreadable(_))));
    let beyond = layout().read_function(&objects(vec![], vec![], &[]), Avma(u64::MAX), 1);
    assert!(matches!(beyond, Err(FunctionError::Malformed(_))), "{beyond:?}");
}

proptest! {
    #[test]
    fn any_memory_gives_a_function_within_the_limits(
        name in prop::collection::vec(any::<u8>(), 0..400),
        state in prop::sample::select(vec![0xe5_u8, 0x25, 0x28, 0x30, 0x7f]),
        size in 0_u64..400,
        lines in prop::collection::vec(any::<u8>(), 0..400),
        minor in 8_u8..=12,
    ) {
        let mut name = name;
        for (at, byte) in size.to_le_bytes().into_iter().enumerate() {
            if let Some(to) = name.get_mut(16 + at) { *to = byte; }
        }
        if let Some(to) = name.get_mut(32) { *to = state; }
        let memory = objects(name, text_of("path"), &lines);
        let layout = Layout::of_minor(minor).unwrap();
        let Ok(cookie) = layout.read_cookie(&memory, CODE) else { return Ok(()) };
        if let Ok(function) = layout.read_function(&memory, CODE, cookie) {
            prop_assert!(function.name().len() <= 1024 && function.path().len() <= 4096);
        }
    }
}
