use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::DisplayNames;
use crate::expansion::ExpansionBudget;

fn read(
    title: &str,
    bytes: &[u8],
    sample_type: Option<&str>,
    names: &mut dyn PerfNames,
) -> Result<Profile, ReadError> {
    super::read(PerfProfile::new(title, sample_type, ExpansionBudget::for_document(0, 0)), bytes, names)
}

/// `perf_event_attr::sample_type`: IP, TID, TIME, CALLCHAIN, PERIOD, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 1 << 5 | 1 << 8 | 1 << 16;
const CLOCK_ID: u64 = 11;
const FAULTS_ID: u64 = 12;
const STACK_USER: u64 = 1 << 13;

/// A file under construction, as perf writes it.
#[derive(Default)]
struct FileBuilder {
    records: Vec<u8>,
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A text with at least one NUL, in whole words.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len() / 8 * 8 + 8, 0);
    bytes
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl FileBuilder {
    /// Adds a record that ends in the fields of its sample type: TID, TIME, IDENTIFIER.
    fn record(&mut self, kind: u32, misc: u16, time_ns: u64, body: &[u8]) -> &mut Self {
        self.records.extend(record(kind, misc, &[body, &words(&[0, time_ns, CLOCK_ID])].concat()));
        self
    }

    fn map(
        &mut self,
        time_ns: u64,
        pid: u32,
        [start, length, offset]: [u64; 3],
        path: &str,
        build_id: u8,
    ) -> &mut Self {
        let identity = [&[20, 0, 0, 0][..], &[build_id; 20]].concat();
        let parts =
            [words(&[pair(pid, pid), start, length, offset]), identity, words(&[pair(4, 0)]), text(path)];
        self.record(10, 1 << 14, time_ns, &parts.concat())
    }

    fn name(&mut self, time_ns: u64, pid: u32, tid: u32, name: &str, is_exec: bool) -> &mut Self {
        let body = [words(&[pair(pid, tid)]), text(name)].concat();
        self.record(3, u16::from(is_exec) << 13, time_ns, &body)
    }

    fn fork(&mut self, time_ns: u64, pid: u32, parent: u32) -> &mut Self {
        self.record(7, 0, time_ns, &words(&[pair(pid, parent), pair(pid, parent), time_ns]))
    }

    fn sample(
        &mut self,
        time_ns: u64,
        event: u64,
        pid: u32,
        tid: u32,
        period: u64,
        chain: &[u64],
    ) -> &mut Self {
        let chain = [&[chain.len() as u64][..], chain].concat();
        let body = [words(&[event, 0x1234, pair(pid, tid), time_ns, period]), words(&chain)].concat();
        self.records.extend(record(9, 2, &body));
        self
    }

    /// A file with two events.
    fn file(&self, sample_type: u64) -> Vec<u8> {
        let attributes =
            |config: u64| words(&[pair(1, 64), config, 500, sample_type, 0, 1 << 10 | 1 << 18, 0, 0]);
        let (ids_at, attributes_at) = (104, 120);
        let entry = |config, id_at| [attributes(config), words(&[id_at, 8])].concat();
        let entries = [entry(0, ids_at), entry(2, ids_at + 8)].concat();
        let data_at = attributes_at + entries.len() as u64;
        let names = ["cpu-clock:ppp", "page-faults"].map(|name| {
            let name = text(name);
            [&attributes(0)[..], &0_u32.to_le_bytes(), &(name.len() as u32).to_le_bytes(), &name].concat()
        });
        let names = [words(&[pair(2, 64)]), names.concat()].concat();
        let kernel = record(
            0,
            1 << 15,
            &[&(-1_i32).to_le_bytes()[..], &[9; 20], &[20, 0, 0, 0], &text(PERF_KERNEL)].concat(),
        );
        let features_at = data_at + self.records.len() as u64;
        let names_at = features_at + 32;
        let sections =
            words(&[names_at + names.len() as u64, kernel.len() as u64, names_at, names.len() as u64]);
        let header = [
            file::MAGIC,
            &words(&[104, 80, attributes_at, entries.len() as u64, data_at, self.records.len() as u64, 0, 0]),
            &words(&[1 << 2 | 1 << 12, 0, 0, 0]),
            &words(&[CLOCK_ID, FAULTS_ID]),
        ];
        [&header.concat()[..], &entries, &self.records, &sections, &names, &kernel].concat()
    }
}

/// Names that tell which file and address they were asked for.
struct AnyNames;

impl PerfNames for AnyNames {
    fn code(&mut self, binary: &PerfBinary, file_offset: u64) -> Option<PerfCode> {
        let build_id = binary.build_id.as_deref().filter(|id| *id == "07".repeat(20))?;
        let function =
            |name: String| PerfFunction { name, system_name: String::new(), path: "a.c".to_owned(), line: 3 };
        let functions =
            vec![function("inlined".to_owned()), function(format!("{}@{file_offset:x}", &build_id[..2]))];
        Some(PerfCode { address: file_offset + 1, frame_type: FrameType::Rust, functions })
    }

    fn kernel(&mut self, kernel: &PerfKernel, address: u64) -> Option<String> {
        assert_eq!((&*kernel.build_id, &*kernel.symbol), (&*"09".repeat(20), "_text"));
        Some(format!("kernel@{:x}", address - kernel.symbol_address))
    }
}

fn read_data(bytes: &[u8], sample_type: Option<&str>) -> Profile {
    read("it", bytes, sample_type, &mut AnyNames).unwrap()
}

fn folded(profile: &Profile) -> BTreeSet<String> {
    crate::folded::lines(profile, &DisplayNames::default()).collect()
}

const KERNEL_CONTEXT: u64 = -128_i64 as u64;
const USER_CONTEXT: u64 = -512_i64 as u64;
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;

/// A process that forks and executes another file.
fn recording() -> FileBuilder {
    let mut file = FileBuilder::default();
    let chain = [KERNEL_CONTEXT, KERNEL_TEXT + 0x10, KERNEL_TEXT + 0x21, USER_CONTEXT, 0x1004, 0x1105];
    file.sample(50, CLOCK_ID, 7, 8, 1000, &chain)
        .map(0, record::KERNEL_PID, [KERNEL_TEXT, 0x1000, KERNEL_TEXT], "[kernel.kallsyms]_text", 9)
        .map(10, 7, [0x1000, 0x1000, 0x500], "/bin/app", 7)
        .name(10, 7, 7, "app", false)
        .name(11, 7, 8, "worker", false)
        .fork(60, 70, 7)
        .sample(70, CLOCK_ID, 70, 70, 1000, &[USER_CONTEXT, 0x1004])
        .name(80, 70, 70, "other", true)
        .map(81, 70, [0x1000, 0x1000, 0], "/bin/other", 6)
        .sample(90, CLOCK_ID, 70, 70, 1000, &[USER_CONTEXT, 0x1004, 0x9001])
        .sample(91, FAULTS_ID, 7, 7, 3, &[])
        .record(2, 0, 92, &words(&[CLOCK_ID, 5]));
    file
}

#[test]
fn samples_are_named_by_what_was_mapped_at_their_time() {
    let profile = read_data(&recording().file(SAMPLE_TYPE), None);
    assert_eq!(
        folded(&profile),
        BTreeSet::from(
            [
                "app;07@604;inlined;07@504;inlined;kernel@20_[k];kernel@10_[k] 1",
                "other;07@504;inlined 1",
                "other;[unknown];other+0x4 1",
            ]
            .map(str::to_owned)
        ),
        "the thread is called other when it ends"
    );
    assert_eq!((profile.measure.rate_hz(), profile.measure.period_ns()), (1_000_000, 1000));
    assert_eq!(profile.duration.as_nanos(), 40);
    let threads: Vec<_> = profile
        .threads
        .iter()
        .map(|thread| (&*thread.process, thread.pid, &*thread.name, thread.tid))
        .collect();
    assert_eq!(threads, [("app", 7, "worker", 8), ("other", 70, "app", 70), ("other", 70, "other", 70)]);
    let outcomes: Vec<_> = profile.outcomes.iter().map(|outcome| (&*outcome.name, outcome.count)).collect();
    assert_eq!(outcomes, [("complete", 3), ("lost by perf", 5)]);
    let frame = |name: &str| {
        let found = profile.stacked_frames().map(|(_, frame)| frame).find(|frame| frame.name() == name);
        found.expect(name)
    };
    let kernel = frame("kernel@10");
    assert_eq!((kernel.location.frame_type, kernel.binary_path()), (FrameType::Kernel, "[kernel]"));
    let code = frame("07@504");
    assert_eq!((code.location.frame_type, code.location.address), (FrameType::Rust, 0x505));
    assert_eq!((code.path(), code.line.line), ("a.c", 3));
}

#[test]
fn each_event_is_a_profile_and_a_sample_without_a_chain_has_its_address() {
    let bytes = recording().file(SAMPLE_TYPE);
    let faults = read_data(&bytes, Some("page-faults"));
    assert_eq!((faults.total_count(), faults.measure.name()), (3, "faults"));
    assert_eq!(folded(&faults), BTreeSet::from(["app;07@734;inlined 3".to_owned()]));
    let error = read("it", &bytes, Some("cycles"), &mut NoNames).unwrap_err().to_string();
    assert!(error.ends_with("it holds cpu-clock:ppp, page-faults"), "{error}");
    let unnamed = read("it", &bytes, Some("page-faults"), &mut NoNames).unwrap();
    assert_eq!(folded(&unnamed), BTreeSet::from(["app;app+0x734 3".to_owned()]));
}

#[test]
fn the_same_is_read_from_a_pipe_and_from_compressed_records() {
    let recording = recording();
    let whole = read_data(&recording.file(SAMPLE_TYPE), None);
    let mut compressed = FileBuilder::default();
    let stream = zstd::encode_all(&*recording.records, 3).unwrap();
    for part in stream.chunks(100) {
        compressed.records.extend(record(81, 0, part));
    }
    assert_eq!(folded(&read_data(&compressed.file(SAMPLE_TYPE), None)), folded(&whole));

    let attributes = |config: u64, id: u64| {
        record(64, 0, &words(&[pair(1, 64), config, 500, SAMPLE_TYPE, 0, 1 << 10 | 1 << 18, 0, 0, id]))
    };
    let kernel =
        record(67, 0, &[&(-1_i32).to_le_bytes()[..], &[9; 20], &[0; 4], &text(PERF_KERNEL)].concat());
    let header = [file::MAGIC, &words(&[16])].concat();
    let pipe =
        [header, attributes(0, CLOCK_ID), attributes(2, FAULTS_ID), recording.records, kernel].concat();
    let piped = read_data(&pipe, Some("cpu-clock"));
    assert_eq!(folded(&piped), folded(&whole));
}

#[test]
fn a_stack_that_was_only_copied_is_marked() {
    let profile = read_data(&recording().file(SAMPLE_TYPE | STACK_USER), None);
    assert_eq!(profile.outcomes[0].name, "stack only copied");
    assert!(folded(&profile).iter().all(|stack| stack.contains(";[truncated: perf only copied the stack];")));
    assert!({
        let marker = Marker::truncated(NOT_UNWOUND);
        profile.stacked_frames().any(|(_, frame)| frame.location.marker == Some(&marker))
    });
}

#[test]
fn a_cut_file_has_the_samples_up_to_there_and_says_so() {
    let mut recording = recording();
    recording.records.truncate(recording.records.len() - 10);
    let mut bytes = recording.file(SAMPLE_TYPE);
    assert!(read_data(&bytes, None).outcomes.iter().any(|outcome| outcome.name == "malformed"));
    // perf was killed: the size of the records is 0, and nothing is behind them.
    bytes[48..56].fill(0);
    assert_eq!(read_data(&bytes, Some("cpu-clock")).total_count(), 3);
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    for (bytes, reason) in [
        (&b"PERFILE2"[..], "its header is cut"),
        (b"2ELIFREP", "it comes from a big-endian machine"),
        (b"PERFILE2\x68\0\0\0\0\0\0\0\xff", "its header refers to parts that it does not have"),
        (b"PERFILE2\x10\0\0\0\0\0\0\0", "it has no event"),
    ] {
        let error = read("it", bytes, None, &mut NoNames).unwrap_err().to_string();
        assert_eq!(error, format!("it is not a perf.data file that can be read: {reason}"));
    }
}

#[test]
fn processes_that_copy_too_many_mappings_are_refused() {
    let mut file = FileBuilder::default();
    for number in 0..4096_u64 {
        file.map(1, 1, [number * 0x1000, 0x1000, 0], "/bin/app", 7);
    }
    for pid in 2..300 {
        file.fork(2, pid, 1).map(3, pid, [0, 1, 0], "/bin/app", 7);
    }
    let error = read("it", &file.file(SAMPLE_TYPE), None, &mut NoNames).unwrap_err().to_string();
    assert!(error.ends_with("its processes map more files than can be held"), "{error}");
}

proptest! {
    /// A valid file in which some words have other values, or that ends early: read or refused, without a panic.
    #[test]
    fn damaged_files_are_read_or_refused(
        damages in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
        end in any::<proptest::sample::Index>(),
        sample_type in any::<u64>(),
    ) {
        for sample_type in [SAMPLE_TYPE, sample_type] {
            let mut bytes = recording().file(sample_type);
            for (at, value) in &damages {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let _ = read("it", &bytes, None, &mut NoNames);
            bytes.truncate(end.index(bytes.len()));
            let _ = read("it", &bytes, None, &mut NoNames);
        }
    }
}
