//! What functions take of memory, as an allocator sees it. The only test of its program, so that nothing else allocates.
#![expect(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::io;

use peak_alloc::PeakAlloc;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::cpython::Layout;
use sidewinder_vm::{Function, FunctionCache, SharedTexts};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// As those of a receiver: a process, an address, a cookie, and how the function is executed.
type Key = (u32, u64, Avma, u32, u64);

const FUNCTIONS: u64 = 100_000;
/// A code object and what it refers to lie this far apart from the next one's.
const STRIDE: u64 = 1 << 16;
const PART: u64 = 1 << 12;
/// What the test itself may leave allocated, such as the buffer of its output.
const LEFT_BYTES: usize = 4 << 10;

/// A process with code objects of 3.12: the parts of number N are at `N * STRIDE`.
struct CodeObjects;

impl ForeignMemory for CodeObjects {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let (number, within) = (at.0 / STRIDE, at.0 % STRIDE);
        let object = match within / PART {
            0 => code(number),
            1 => text(&format!("module.Class{number:06}.method{}", "_".repeat(number as usize % 13))),
            2 => text(&format!("/usr/lib/python3/dist-packages/package/module{}.py", number % 100)),
            3 => lines(8 + number % 16),
            _ => code_type(number),
        };
        let start = (within % PART) as usize;
        let bytes = object.get(start..start + to.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(bytes);
        Ok(())
    }
}

fn code(number: u64) -> Vec<u8> {
    let mut object = vec![0; 200];
    object[..8].copy_from_slice(&1_u64.to_le_bytes());
    object[68..72].copy_from_slice(&1_u32.to_le_bytes());
    for (field, part) in [(128, 1), (112, 2), (136, 3), (8, 4)] {
        object[field..field + 8].copy_from_slice(&(number * STRIDE + part * PART).to_le_bytes());
    }
    object
}

/// The type of a code object, followed by its name.
fn code_type(number: u64) -> Vec<u8> {
    let name = number * STRIDE + 4 * PART + 32;
    [&[0; 24][..], &name.to_le_bytes(), b"code\0"].concat()
}

/// A compact ASCII string.
fn text(text: &str) -> Vec<u8> {
    let mut object = vec![0; 40];
    object[16..24].copy_from_slice(&(text.len() as u64).to_le_bytes());
    object[32..36].copy_from_slice(&(1_u32 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7).to_le_bytes());
    object.extend(text.as_bytes());
    object
}

/// A table in which each unit of code is in the line after that of the one before: entries of the form "line + 1, columns".
fn lines(rows: u64) -> Vec<u8> {
    let table: Vec<u8> = (0..rows).flat_map(|_| [0x80 | 11 << 3, 0, 0]).collect();
    let mut object = vec![0; 32];
    object[16..24].copy_from_slice(&(table.len() as u64).to_le_bytes());
    object.extend(table);
    object
}

fn function(number: u64) -> Function {
    let layout = Layout::of_minor(12).unwrap();
    let at = Avma(number * STRIDE);
    let cookie = layout.read_cookie(&CodeObjects, at).unwrap();
    layout.read_function(&CodeObjects, at, cookie).unwrap()
}

fn key(number: u64) -> Key {
    (7, 1, Avma(number * STRIDE), 1, 0)
}

/// A method as in programs of Java: with a name of 70 characters, 45 of them its class's, which has ten of them, and ten lines.
fn method(number: u64) -> Function {
    let class = format!("com.example.application.services.Class{:06}.", number / 10);
    let name = format!("update{:06}(String, int)", number);
    let path = format!("com/example/application/services/Class{:06}.java", number / 10);
    let lines: Vec<_> = (0..10).map(|row| (5 * row, 100 + row)).collect();
    Function::method(&class, &name, &path, &lines)
}

/// 20,000 methods take no more than 4 MiB, as the allocator is asked for them.
fn methods_share_the_names_of_their_classes() {
    const METHODS: u64 = 20_000;
    const METHODS_BYTES_MAX: usize = 4 << 20;
    let at_start = ALLOCATED.current_usage();
    let mut cache = FunctionCache::<Key>::new(usize::MAX);
    (0..METHODS).for_each(|number| assert_eq!(cache.insert(key(number), Some(method(number))), 0));
    let (counted, real) = (cache.bytes(), ALLOCATED.current_usage() - at_start);
    eprintln!("{counted} bytes are counted for {METHODS} methods, {real} are requested from the allocator");
    assert!(real <= METHODS_BYTES_MAX && counted >= real, "{real} {counted}");
    let last = cache.get(&key(METHODS - 1)).unwrap().unwrap();
    assert_eq!(last.name(), "com.example.application.services.Class001999.update019999(String, int)");
    assert_eq!(last.name().len(), 70);
}

#[test]
fn functions_stay_inside_their_budget() {
    methods_share_the_names_of_their_classes();
    // The blocks of a function, its node, and the map.
    const HEADERS: usize = 16;
    const BLOCKS: usize = 4;
    let at_start = ALLOCATED.current_usage();
    let used = || ALLOCATED.current_usage() - at_start;

    let mut cache = FunctionCache::<Key>::new(usize::MAX);
    (1..=FUNCTIONS).for_each(|number| assert_eq!(cache.insert(key(number), Some(function(number))), 0));
    let count = FUNCTIONS as usize;
    assert_eq!(cache.len(), count);
    let (counted, real) = (cache.bytes() / count, used() / count);
    eprintln!("{counted} bytes are counted for a function, {real} are requested from the allocator");
    // The allocator's own headers and rounding are counted in addition.
    assert!(counted >= real, "{counted} {real}");
    assert!(counted <= real * 5 / 4 + BLOCKS * HEADERS, "{counted} {real}");
    assert_eq!(&*cache.get(&key(1)).unwrap().unwrap().name(), "module.Class000001.method_");

    cache.remove_if(|(_, _, at, ..)| at.0 > STRIDE);
    let left = function(1);
    let left_bytes = FunctionCache::<Key>::entry_bytes(Some(&left)) + SharedTexts::entry_bytes(left.path());
    assert_eq!((cache.len(), cache.bytes()), (1, left_bytes));
    drop(cache);
    assert!(used() < LEFT_BYTES, "{}", used());

    // A twentieth of them fits. Those that are looked up again and again stay.
    let budget_bytes = counted * count / 20;
    let mut cache = FunctionCache::<Key>::new(budget_bytes);
    let mut forgotten = 0;
    let kept = 1..=100;
    for number in 1..=FUNCTIONS {
        forgotten += cache.insert(key(number), Some(function(number)));
        assert!(cache.bytes() <= budget_bytes, "{number}");
        if number % 500 == 0 {
            kept.clone().for_each(|number| assert!(cache.get(&key(number)).is_some(), "{number}"));
            assert!(used() <= budget_bytes, "{number}: {} of {budget_bytes}", used());
        }
    }
    assert_eq!(forgotten + cache.len(), count);
    assert!(cache.bytes() >= budget_bytes * 3 / 4);
    assert!(cache.get(&key(FUNCTIONS)).is_some() && cache.get(&key(FUNCTIONS / 2)).is_none());
    let too_large = cache.insert(key(0), None);
    assert_eq!((too_large, cache.get(&key(0))), (0, Some(None)));

    let mut none = FunctionCache::<Key>::new(100);
    assert_eq!((none.insert(key(1), Some(function(1))), none.len(), none.bytes()), (0, 0, 0));
}
