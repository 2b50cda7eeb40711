//! Running interpreters, and what they say of themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use sidewinder_address::Avma;
use sidewinder_process::tls::TlsLocation;
use sidewinder_process::{ForeignMemory, Pid, ProcRoot, ProcessDir, ProcessMemory, read_executable_mappings};
use sidewinder_vm::cpython::{Groups, InstructionForm, Interpreter};

/// Frames that are walked at most.
const FRAMES_MAX: usize = 100;

/// An interpreter that runs `program.py` and waits.
pub(crate) struct Python {
    child: Child,
    pub(crate) interpreter: Interpreter,
    pub(crate) bias: u64,
    /// The files that it maps.
    pub(crate) files: BTreeSet<PathBuf>,
    pub(crate) location: TlsLocation,
    /// Of the state of a thread that holds the lock (3.12+).
    pub(crate) attached: Option<TlsLocation>,
    pub(crate) memory: ProcessMemory,
    pub(crate) said: Said,
}

/// What the program says.
#[derive(Default, Debug)]
pub(crate) struct Said {
    pub(crate) version: u8,
    /// Whether it has no lock.
    pub(crate) is_free_threaded: bool,
    pub(crate) codes: BTreeMap<u64, SaidCode>,
    pub(crate) threads: Vec<SaidThread>,
    /// The thread that holds the interpreter's lock.
    pub(crate) holder: u64,
}

#[derive(Debug)]
pub(crate) struct SaidCode {
    pub(crate) code: Avma,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) first_line: u32,
    pub(crate) bytes: u32,
    ranges: Vec<(u32, u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct SaidThread {
    pub(crate) activations: Option<usize>,
    pub(crate) pointer: u64,
    pub(crate) frames: Vec<(Avma, u32)>,
}

impl SaidCode {
    pub(crate) fn line_at(&self, place: u32) -> Option<u32> {
        let range = self.ranges.iter().find(|(start, end, _)| (*start..*end).contains(&place))?;
        Some(range.2)
    }
}

impl Said {
    fn hear(from: impl BufRead) -> Self {
        let mut said = Self::default();
        for line in from.lines() {
            let line = line.unwrap();
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["version", minor, is_free_threaded] => {
                    said.version = minor.parse().unwrap();
                    said.is_free_threaded = is_free_threaded == "True";
                }
                ["code", id, name, path, first_line, bytes, ranges] => {
                    let code = Avma(id.parse().unwrap());
                    let [first_line, bytes] = [first_line, bytes].map(|field| field.parse().unwrap());
                    let ranges = numbers(ranges).map(|range| (range[0], range[1], range[2])).collect();
                    let [name, path] = [name, path].map(text);
                    said.codes.insert(code.0, SaidCode { code, name, path, first_line, bytes, ranges });
                }
                ["frames", activations, pointer, frames] => said.threads.push(SaidThread {
                    activations: activations.parse().ok(),
                    pointer: pointer.parse().unwrap(),
                    frames: frames
                        .split(',')
                        .map(|frame| frame.split_once(':').unwrap())
                        .map(|(code, line)| (Avma(code.parse().unwrap()), line.parse().unwrap()))
                        .collect(),
                }),
                ["holder", pointer] => said.holder = pointer.parse().unwrap(),
                ["ready"] => return said,
                _ => panic!("{line}"),
            }
        }
        panic!("the program has ended");
    }
}

/// Groups of numbers: `1:2:3,4:5:6`.
fn numbers(list: &str) -> impl Iterator<Item = Vec<u32>> {
    let groups = list.split(',').filter(|group| !group.is_empty());
    groups.map(|group| group.split(':').map(|number| number.parse().unwrap()).collect())
}

/// Text from the hexadecimal form of its UTF-8.
fn text(digits: &str) -> String {
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    String::from_utf8(pairs.iter().map(byte).collect()).unwrap()
}

impl Python {
    pub(crate) fn start(path: &Path) -> Self {
        Self::run(&mut Command::new(path))
    }

    /// Has the command of an interpreter run the program.
    pub(crate) fn run(command: &mut Command) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.py");
        let mut child = command
            .args(["-s", "-u"])
            .arg(program)
            .env("PYTHONIOENCODING", "utf-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Said::hear(BufReader::new(child.stdout.take().unwrap()));
        wait_for_readers(child.id());
        let open = || ProcessDir::open(&ProcRoot::default(), Pid(child.id())).unwrap();
        let memory = ProcessMemory::new(open());
        let (mut found, mut files) = (None, BTreeSet::new());
        read_executable_mappings(open().file("maps").unwrap(), |mapping| {
            let Some(file) = mapping.backing.file() else { return };
            let path = str::from_utf8(file.path()).unwrap();
            files.insert(PathBuf::from(path));
            let file = File::open(path).unwrap();
            let Some(interpreter) = Interpreter::read(&file).unwrap() else { return };
            let bias = interpreter.bias_of(&mapping).unwrap();
            let location = interpreter.locate_thread_state(bias, &memory, None).unwrap();
            let attached = interpreter.locate_attached_thread_state(bias, &memory).ok();
            found = Some((interpreter, bias, location, attached));
        })
        .unwrap();
        let (interpreter, bias, location, attached) =
            found.unwrap_or_else(|| panic!("{command:?}: no interpreter"));
        Self { child, interpreter, bias, files, location, attached, memory, said }
    }

    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        self.memory.read_exact(Avma(at), to).unwrap();
    }

    fn word(&self, at: u64) -> u64 {
        self.memory.word(Avma(at)).unwrap()
    }

    /// The cookie of what is at an address.
    pub(crate) fn cookie(&self, code: Avma) -> u32 {
        self.interpreter.layout.read_cookie(&self.memory, code).unwrap()
    }

    /// A thread's pointer to its state.
    pub(crate) fn state(&self, thread: u64, location: TlsLocation) -> u64 {
        let at = match location {
            TlsLocation::Static { offset } => thread.wrapping_add_signed(offset),
            TlsLocation::Dynamic { module, offset } => {
                self.word(self.word(thread + 8) + module * 16) + offset
            }
            TlsLocation::Indirect { pointer, offset } => {
                self.word(thread.wrapping_add_signed(pointer)) + offset
            }
        };
        self.word(at)
    }

    /// The address of the bytecode that a frame executes, given its words.
    fn bytecode(&self, code: u64, word: impl Fn(u16) -> u64) -> u64 {
        let layout = &self.interpreter.layout;
        match layout.copies.map(|copies| (copies.array, u64::from(word(copies.number) as u32))) {
            None | Some((_, 0)) => code + u64::from(layout.bytecode),
            Some((array, number)) => self.word(self.word(code + u64::from(array)) + (number + 1) * 8),
        }
    }

    /// The code and the line of each frame of a thread, by group, from the innermost.
    pub(crate) fn walk(&self, thread: u64) -> Vec<Vec<(Avma, u32)>> {
        let layout = &self.interpreter.layout;
        let state = self.state(thread, self.location);
        assert_eq!(self.word(state + u64::from(layout.thread_id)), thread, "another thread's state");
        let holder = layout.cframe.map_or(state, |cframe| self.word(state + u64::from(cframe)));
        let mut frame = self.word(holder + u64::from(layout.current_frame));
        let (mut groups, mut group) = (Vec::new(), Vec::new());
        for _ in 0..FRAMES_MAX {
            if frame == 0 {
                assert!(group.is_empty(), "the last group has no end: {groups:?}, {group:?}");
                return groups;
            }
            let mut bytes = vec![0; layout.frame_bytes.into()];
            self.read(frame, &mut bytes);
            let word = |at: u16| u64::from_le_bytes(*bytes[at.into()..].first_chunk().unwrap());
            frame = word(layout.previous);
            let owner = bytes[usize::from(layout.owner)];
            if layout.groups == Groups::EndsAtShim && owner >= 3 {
                groups.push(std::mem::take(&mut group));
                continue;
            }
            let code = word(layout.code) & !7;
            let index = word(layout.instruction) as i32;
            let place = match layout.instruction_form {
                InstructionForm::ByteIndex => index,
                InstructionForm::UnitIndex => index * 2,
                InstructionForm::Pointer => {
                    word(layout.instruction).wrapping_sub(self.bytecode(code, word)) as i32
                }
            };
            let function = layout.read_function(&self.memory, Avma(code), self.cookie(Avma(code))).unwrap();
            group.push((Avma(code), function.line_at(place as u32).unwrap()));
            let is_last = match layout.groups {
                Groups::OneFrame => true,
                Groups::LastIsEntry => owner != 0,
                Groups::EndsAtShim => false,
            };
            if is_last {
                groups.push(std::mem::take(&mut group));
            }
        }
        panic!("more than {FRAMES_MAX} frames: {groups:?}");
    }
}

/// Waits until two threads wait for a byte of their standard input: what they say, they say before that.
fn wait_for_readers(pid: u32) {
    const TRIES: u32 = 10_000;
    for _ in 0..TRIES {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        // The number of the system call, or "running", and its arguments: the file, the buffer, and the length.
        let is_reader = |task: &PathBuf| {
            let call = fs::read_to_string(task.join("syscall")).unwrap();
            let fields: Vec<&str> = call.split(' ').collect();
            matches!(fields[..], [_, "0x0", _, "0x1", ..])
        };
        if tasks.map(|task| task.unwrap().path()).filter(is_reader).count() == 2 {
            return;
        }
        sleep(Duration::from_millis(1));
    }
    panic!("the threads don't wait");
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
