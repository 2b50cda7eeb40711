//! Tests that the walk of the eBPF programs and the walk of snapshots agree: given the same registers, stack and tables,
//! both find the same frames and the same outcome.

use std::collections::{BTreeMap, HashMap};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{
    LoadError, MappedRange, Opener, Options, Outcome, PackedSegment, Profiler, RawFrame, Record,
    RegisterFile, SegmentId, StackEntries, StackHash, StackMemory, StackPiece, StackSnapshot, Storage,
    WalkMode, WalkedRuntime, monotonic_ns,
};
use sidewinder_process::FileId;
use sidewinder_unwind::CALL_BYTES;
use sidewinder_unwind_table::{
    CalleeSaved, Cfa, EndReason, Entry, Register, ReturnAddress, Rule, SavedRegister,
};

use super::code_lookup::{CodeLocation, CodeLookup};
use super::groups::VmGroups;
use super::walk::walk;
use crate::VmCode;

const FRAME_LIMIT: u32 = 12;

const PAGE_BYTES: u64 = StackMemory::PAGE_BYTES as u64;
/// Two pages, so that read windows end in the middle of the readable memory, and at its end.
const STACK_PAGES: usize = 2;
const STACK_BYTES: u64 = STACK_PAGES as u64 * PAGE_BYTES;

/// The code is right below the stack: a page with a table, one whose table is not loaded, and one that no file backs.
const CODE_PAGES: u64 = 3;
const CODE_BYTES: u64 = CODE_PAGES * PAGE_BYTES;
const CODE_FILE: u32 = 7;

/// The number of bytes that each entry of the table covers.
const SPACING: u64 = 64;
const ENTRIES_MAX: usize = (PAGE_BYTES / SPACING) as usize;

/// The index of the entry that is the frame-pointer rule in every table.
const FRAME_POINTER_ENTRY: usize = 0;

/// A word of a stack or a register, relative to the addresses of stack and code.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// In code with a table: the index of the entry, and the offset from its start in bytes.
    Code(usize, u64),
    /// Anywhere in the code pages or the page on either side of them: the offset in bytes.
    NearCode(u64),
    /// The offset in bytes from the start of the stack; may be beyond its end.
    Stack(u64),
    /// The number of words above the word itself, as for saved frame pointers.
    Above(u64),
    Literal(u64),
}

impl Word {
    fn value(self, at: u64, stack: u64) -> u64 {
        let code = stack - CODE_BYTES;
        match self {
            Self::Code(entry, offset) => code + entry as u64 * SPACING + offset,
            Self::NearCode(offset) => code - PAGE_BYTES + offset,
            Self::Stack(offset) => stack + offset,
            Self::Above(words) => at + words * 8,
            Self::Literal(value) => value,
        }
    }
}

/// A thread: its stack pointer, in bytes from the start of the stack; its frame pointer; its pc; its other registers; and
/// the words that its stack repeats.
#[derive(Clone, Debug)]
struct SimulatedThread {
    sp: u64,
    fp: Word,
    pc: Word,
    others: Vec<Word>,
    words: Vec<Word>,
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        30 => (0..ENTRIES_MAX, 1..SPACING).prop_map(|(entry, offset)| Word::Code(entry, offset)),
        1 => (0..(CODE_PAGES + 2) * PAGE_BYTES).prop_map(Word::NearCode),
        2 => (0..STACK_BYTES + 64).prop_map(Word::Stack),
        8 => (0u64..24).prop_map(Word::Above),
        2 => prop_oneof![4 => Just(0), 1 => 0u64..64, 1 => Just(u64::MAX), 1 => Just(1 << 63)].prop_map(Word::Literal),
    ]
}

/// Saved frame pointers that lead anywhere in the stack, each before a return address into code with the frame-pointer rule.
fn looping_frames() -> impl Strategy<Value = Vec<Word>> {
    let frame = (0..STACK_BYTES / 16, 1..SPACING);
    vec(frame, 1..8).prop_map(|frames| {
        let words = |(slot, offset)| [Word::Stack(slot * 16), Word::Code(FRAME_POINTER_ENTRY, offset)];
        frames.into_iter().flat_map(words).collect()
    })
}

fn thread() -> impl Strategy<Value = SimulatedThread> {
    let sp = prop_oneof![8 => (0..STACK_BYTES / 8).prop_map(|word| word * 8), 1 => 0..STACK_BYTES + 64];
    let fp = prop_oneof![4 => (0..STACK_BYTES / 8).prop_map(|word| Word::Stack(word * 8)), 1 => word()];
    let generated = (CODE_PAGES * PAGE_BYTES..(CODE_PAGES + 1) * PAGE_BYTES).prop_map(Word::NearCode);
    let pc = prop_oneof![
        8 => (0..ENTRIES_MAX, 0..SPACING).prop_map(|(entry, offset)| Word::Code(entry, offset)),
        1 => generated,
        1 => word()
    ];
    let words = prop_oneof![12 => vec(word(), 1..96), 1 => looping_frames()];
    (sp, fp, pc, vec(word(), 16), words).prop_map(|(sp, fp, pc, others, words)| SimulatedThread {
        sp,
        fp,
        pc,
        others,
        words,
    })
}

fn register() -> impl Strategy<Value = Register> {
    let any = (0..Register::COUNT as u16).prop_filter_map("a register", Register::from_dwarf);
    prop_oneof![6 => Just(Register::STACK_POINTER), 4 => Just(Register::FRAME_POINTER), 1 => Just(Register::CALLEE_SAVED), 1 => any]
}

fn offset() -> impl Strategy<Value = i32> {
    prop_oneof![12 => (-8i32..24).prop_map(|words| words * 8), 1 => -256i32..256, 1 => -9_000i32..9_000]
}

fn rule() -> impl Strategy<Value = Rule> {
    let addend = || prop_oneof![4 => (0i32..8).prop_map(|words| words * 8), 1 => 0i32..200];
    let forward = prop_oneof![8 => (1i32..24).prop_map(|words| words * 8), 1 => offset()];
    let cfa = prop_oneof![
        12 => (register(), forward).prop_map(|(register, offset)| Cfa::Register { register, offset }),
        2 => (10u8..12).prop_map(|threshold| Cfa::Plt { threshold }),
        2 => (register(), offset(), addend())
            .prop_map(|(register, offset, addend)| Cfa::Deref { register, offset, addend }),
        1 => (register(), register(), offset(), addend())
            .prop_map(|(register, index, offset, addend)| Cfa::DerefIndexed { register, index, offset, addend }),
    ];
    let frame_pointer = prop_oneof![
        4 => Just(SavedRegister::Same),
        6 => offset().prop_map(SavedRegister::AtCfa),
        1 => (register(), offset()).prop_map(|(register, offset)| SavedRegister::At { register, offset }),
        1 => register().prop_map(SavedRegister::InRegister),
        1 => Just(SavedRegister::Undefined),
    ];
    let return_address = prop_oneof![
        12 => Just(ReturnAddress::AtCfa(-8)),
        2 => offset().prop_map(ReturnAddress::AtCfa),
        1 => (register(), offset()).prop_map(|(register, offset)| ReturnAddress::At { register, offset }),
        1 => register().prop_map(ReturnAddress::InRegister),
        1 => offset().prop_map(ReturnAddress::OfParent),
        1 => Just(ReturnAddress::Undefined),
    ];
    let callee_saved = prop_oneof![
        Just(CalleeSaved::Unknown),
        Just(CalleeSaved::Same),
        (-20i32..0).prop_map(|words| CalleeSaved::AtCfa(words * 8)),
    ];
    (cfa, frame_pointer, return_address, callee_saved, prop::bool::weighted(0.1)).prop_map(
        |(cfa, frame_pointer, return_address, callee_saved, signal_frame)| Rule {
            cfa,
            frame_pointer,
            return_address,
            callee_saved,
            signal_frame,
        },
    )
}

/// Rules that compilers produce.
fn usual_rule() -> impl Strategy<Value = Rule> {
    let frame_pointer = prop_oneof![Just(SavedRegister::Same), Just(SavedRegister::AtCfa(-16))];
    (1i32..6, frame_pointer)
        .prop_map(|(words, frame_pointer)| Rule { frame_pointer, ..Rule::above_stack_pointer(words * 8) })
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        30 => usual_rule().prop_map(Entry::Rule),
        2 => Just(Entry::Rule(Rule::FRAME_POINTER)),
        1 => Just(Entry::Rule(Rule::KERNEL_SIGNAL_FRAME)),
        14 => rule().prop_map(Entry::Rule),
        1 => Just(Entry::NO_INFORMATION),
        1 => Just(Entry::End(EndReason::Malformed)),
    ]
}

/// Instructions, with direct calls of nearby functions and calls through a register, which are what walks look at.
fn instructions() -> impl Strategy<Value = Vec<u8>> {
    let instruction = prop_oneof![
        Just(vec![0xff, 0xd0]),
        any::<u8>().prop_map(|near| vec![0xe8, near, 0xff, 0xff, 0xff]),
        Just(vec![0x90]),
    ];
    vec(instruction, 8..64).prop_map(|instructions| instructions.concat())
}

/// The eBPF programs, and the memory that they walk: code, and a stack above it.
struct Programs<'obj> {
    profiler: Profiler<'obj>,
    memory: StackMemory,
    segments: [SegmentId; 2],
    bodies: HashMap<StackHash, Vec<RawFrame>>,
}

impl Programs<'_> {
    fn code(&self) -> u64 {
        self.memory.start()
    }

    fn stack(&self) -> u64 {
        self.code() + CODE_BYTES
    }

    fn stack_words(&mut self) -> &mut [u64] {
        &mut self.memory.words()[CODE_BYTES as usize / 8..]
    }

    /// Publishes these instructions and rules as the code of this process.
    fn publish(&mut self, instructions: &[u8], entries: &[Entry]) {
        let mut bytes = instructions.iter().copied().cycle();
        for word in &mut self.memory.words()[..CODE_BYTES as usize / 8] {
            *word = u64::from_ne_bytes(std::array::from_fn(|_| bytes.next().unwrap()));
        }
        let code = self.code();
        let page = |index, file, segment| MappedRange {
            start: Avma(code + index * PAGE_BYTES),
            bytes: PAGE_BYTES,
            file,
            file_offset: FileOffset(index * PAGE_BYTES),
            segment,
        };
        let [with_table, without] = self.segments;
        let ranges =
            [page(0, CODE_FILE, Some(with_table)), page(1, CODE_FILE, Some(without)), page(2, 0, None)];
        let Profiler { arena, tables, processes, .. } = &mut self.profiler;
        tables.evict(arena, with_table);
        tables.load(arena, with_table, &PackedSegment::from_entries(entries, SPACING)).unwrap();
        processes.publish(arena, std::process::id(), &ranges, &[], &[], monotonic_ns()).unwrap();
        // Invalidates cached rules for the same addresses.
        tables.advance_clock();
        arena.reclaim();
    }

    /// The frames and the outcome of the eBPF programs' walk of a thread.
    fn walk(&mut self, registers: &RegisterFile) -> (Vec<RawFrame>, Outcome) {
        assert!(self.profiler.walk_from_registers(registers).unwrap(), "no scratch");
        let mut records = Vec::new();
        self.profiler.rings().drain(&mut records);
        let mut sample = None;
        for record in records {
            match record {
                Record::Body(body) => {
                    let StackEntries::Frames(frames) = body.entries else { panic!("stacks are short") };
                    self.bodies.insert(body.hash, frames.into_vec());
                }
                Record::Sample(record) => sample = Some(record),
                Record::Snapshot(_) | Record::Newcomer(_) | Record::CodeObject(_) | Record::WaitEnd(_) => {}
            }
        }
        let sample = sample.expect("a walk leaves a sample");
        (self.bodies[&sample.stack].clone(), sample.outcome)
    }

    /// What the eBPF programs and the receiver find of a thread, in this order.
    fn both_walks(&mut self, thread: &SimulatedThread) -> [(Vec<RawFrame>, Outcome); 2] {
        let registers = self.enter(thread);
        let of_programs = self.walk(&registers);
        let snapshot = self.snapshot(registers);
        let deferred = walk(&snapshot, VmGroups::default(), FRAME_LIMIT as usize, self);
        [of_programs, deferred.expect("every table is loaded, or counts as absent")]
    }

    fn location_at(&self, address: Avma) -> CodeLocation {
        let Some(offset) = address.0.checked_sub(self.code()) else { return CodeLocation::Unmapped };
        let (file, offset) = (FileId(CODE_FILE), FileOffset(offset));
        let Profiler { arena, tables, .. } = &self.profiler;
        match offset.0 / PAGE_BYTES {
            0 => match tables.rule_at(arena, self.segments[0], offset) {
                Some(rule) => CodeLocation::File { file, offset, rule },
                None => panic!("the table is loaded"),
            },
            1 => CodeLocation::File { file, offset, rule: Err(Outcome::NoTable) },
            2 => CodeLocation::Anonymous,
            _ => CodeLocation::Unmapped,
        }
    }

    /// Writes a thread's stack to memory, and returns its registers.
    fn enter(&mut self, thread: &SimulatedThread) -> RegisterFile {
        let stack = self.stack();
        for (i, word) in self.stack_words().iter_mut().enumerate() {
            *word = thread.words[i % thread.words.len()].value(stack + i as u64 * 8, stack);
        }
        let mut registers = [0; 17];
        for (register, word) in registers.iter_mut().zip(&thread.others) {
            *register = word.value(stack, stack);
        }
        registers[6] = thread.fp.value(stack, stack);
        registers[7] = stack + thread.sp;
        registers[16] = thread.pc.value(stack, stack);
        registers
    }

    fn snapshot(&mut self, registers: RegisterFile) -> StackSnapshot {
        let start = self.memory.start();
        let bytes = self.memory.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        StackSnapshot { tid: 1, time_ns: 1, registers, pieces: vec![StackPiece { start, bytes }] }
    }
}

impl CodeLookup for Programs<'_> {
    fn locate(&mut self, address: Avma) -> CodeLocation {
        self.location_at(address)
    }

    fn vm_code_at(&self, _: FileId, _: FileOffset) -> Option<VmCode> {
        None
    }

    fn generator(&mut self) -> Option<WalkedRuntime> {
        None
    }

    fn bytes_before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]> {
        let from_start = address.0.checked_sub(self.memory.start())? as usize;
        // The programs can't read the memory before the code, and treat it as not a call.
        let Some(at) = from_start.checked_sub(CALL_BYTES) else { return Some([0; CALL_BYTES]) };
        let before = self.memory.words().get(at / 8..at / 8 + 2)?;
        let bytes: Vec<u8> = before.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes[at % 8..at % 8 + CALL_BYTES].try_into().ok()
    }
}

/// Loads the programs, or prints why they can't be loaded.
fn programs(storage: &mut Storage) -> Option<Programs<'_>> {
    let options = Options {
        walk: Some(WalkMode::Loop),
        frame_limit: FRAME_LIMIT,
        test_programs: true,
        ..Options::default()
    };
    let mut profiler = match Profiler::load(storage, &options, Opener::start().unwrap()) {
        Ok(profiler) => profiler,
        Err(error) if may_skip(&error) => {
            eprintln!("SKIPPED: eBPF is not allowed here: {error}");
            return None;
        }
        Err(error) => panic!("no programs: {error}"),
    };
    let segments = [(); 2].map(|()| profiler.tables.reserve().unwrap());
    let memory = StackMemory::new(CODE_PAGES as usize + STACK_PAGES).unwrap();
    Some(Programs { profiler, memory, segments, bodies: HashMap::new() })
}

fn may_skip(error: &LoadError) -> bool {
    error.is_permission_denied() && std::env::var_os("CI").is_none()
}

/// Maps outcomes that differ by design: unreadable memory is an absent page or a bad address to the programs, and the end of
/// the snapshot to the receiver.
fn comparable(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::BadAddress | Outcome::PageAbsent => Outcome::SnapshotEnd,
        other => other,
    }
}

#[test]
fn both_walks_find_the_same_frames_and_the_same_outcome() {
    let mut storage = Storage::uninit();
    let Some(programs) = programs(&mut storage) else { return };
    let programs = std::cell::RefCell::new(programs);
    let outcomes = std::cell::RefCell::new(BTreeMap::<Outcome, usize>::new());
    let (deep, guessed) = (std::cell::Cell::new(0), std::cell::Cell::new(0));

    let config = Config { cases: 240, failure_persistence: None, ..Config::default() };
    let tables = vec(entry(), ENTRIES_MAX).prop_map(|mut entries| {
        entries[FRAME_POINTER_ENTRY] = Entry::Rule(Rule::FRAME_POINTER);
        entries
    });
    let inputs = (instructions(), tables, vec(thread(), 24));
    let result = TestRunner::new(config).run(&inputs, |(instructions, entries, threads)| {
        let mut programs = programs.borrow_mut();
        programs.publish(&instructions, &entries);
        for thread in &threads {
            let [(frames, outcome), (deferred_frames, deferred_outcome)] = programs.both_walks(thread);
            prop_assert_eq!(
                &frames,
                &deferred_frames,
                "{:?} and {:?}: {:?}",
                outcome,
                deferred_outcome,
                thread
            );
            prop_assert_eq!(comparable(outcome), deferred_outcome, "{:?}", thread);
            *outcomes.borrow_mut().entry(comparable(outcome)).or_default() += 1;
            deep.set(deep.get() + usize::from(frames.len() >= 4));
            guessed.set(guessed.get() + usize::from(frames.iter().any(|frame| frame.is_unproven())));
        }
        Ok(())
    });
    let (outcomes, deep, guessed) = (outcomes.into_inner(), deep.get(), guessed.get());
    let walks: usize = outcomes.values().sum();
    eprintln!("of {walks} walks, {deep} of four frames and more, {guessed} by guesses; {outcomes:?}");
    if let Err(error) = result {
        panic!("{error}");
    }
    // Of 5,760 walks.
    assert!(deep > 400, "{deep} walks were four frames deep");
    assert!(guessed > 100, "{guessed} walks had to guess");
    for end in [
        Outcome::Complete,
        Outcome::FrameLimit,
        Outcome::NoMapping,
        Outcome::NoRule,
        Outcome::NoTable,
        Outcome::RegisterLost,
        Outcome::SnapshotEnd,
        Outcome::StackNotRising,
        Outcome::UnsupportedRule,
    ] {
        assert!(outcomes.get(&end).copied().unwrap_or(0) > 10, "{end:?} is hardly tested: {outcomes:?}");
    }
}

/// The programs' first window of a stack is as large as the previous stack was. A walk that goes to another stack can end
/// below where it began.
#[test]
fn a_walk_that_ends_below_its_start_leaves_the_next_one_right() {
    let mut storage = Storage::uninit();
    let Some(mut programs) = programs(&mut storage) else { return };
    programs.publish(&[0x90], &[Entry::Rule(Rule::FRAME_POINTER); ENTRIES_MAX]);
    let start = 1024;
    let with_frame_at = |frame| SimulatedThread {
        sp: start,
        fp: Word::Stack(frame),
        pc: Word::Code(FRAME_POINTER_ENTRY, 1),
        others: vec![Word::Literal(0); 16],
        words: vec![Word::Literal(0)],
    };
    for words_below in 0..=16 {
        // Two words are the frame: the caller's stack pointer is above them.
        programs.both_walks(&with_frame_at(start - 16 - words_below * 8));
        // The return address is right above the stack.
        let [(frames, outcome), deferred] = programs.both_walks(&with_frame_at(STACK_BYTES - 8));
        assert_eq!(
            (frames, comparable(outcome)),
            deferred,
            "after a walk that ended {words_below} words below"
        );
    }
}
