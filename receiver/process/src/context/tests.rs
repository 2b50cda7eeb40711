use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::header::{SIGNATURE, VERSION};
use super::*;

const HEADER: u64 = 0x1000;
const PAYLOAD: u64 = 0x9000;

/// Memory with a header and a payload, and the writer's changes between two reads.
struct Scripted<F> {
    header: RefCell<[u8; HEADER_BYTES]>,
    payload: Vec<u8>,
    reads: Cell<u32>,
    /// Changes the header, given the number of reads so far.
    writer: F,
}

impl<F: Fn(u32, &mut [u8; HEADER_BYTES])> ForeignMemory for Scripted<F> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        (self.writer)(self.reads.get(), &mut self.header.borrow_mut());
        let header = self.header.borrow();
        let (start, bytes) =
            if at.0 < PAYLOAD { (HEADER, &header[..]) } else { (PAYLOAD, &self.payload[..]) };
        let from = at.0.checked_sub(start).ok_or(io::ErrorKind::NotFound)? as usize;
        let bytes = from.checked_add(to.len()).and_then(|end| bytes.get(from..end));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fn header_of(version: u32, payload_bytes: u32, published_ns: u64, payload: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend(version.to_ne_bytes());
    bytes.extend(payload_bytes.to_ne_bytes());
    bytes.extend(published_ns.to_ne_bytes());
    bytes.extend(payload.to_ne_bytes());
    bytes.try_into().unwrap()
}

fn memory<F: Fn(u32, &mut [u8; HEADER_BYTES])>(payload: Vec<u8>, writer: F) -> Scripted<F> {
    let header = header_of(VERSION, payload.len() as u32, 7, PAYLOAD);
    Scripted { header: RefCell::new(header), payload, reads: Cell::new(0), writer }
}

/// An encoded `ProcessContext`: strings of its resource, its own attributes, and a list of keys.
fn payload(resource: &[(&str, &str)], attributes: &[(&str, &str)], keys: &[&str]) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        prost::encode_length_delimiter(bytes.len(), &mut field).unwrap();
        field.extend(bytes);
        field
    }
    let text = |text: &str| field(1, text.as_bytes());
    let pair = |key: &str, value: &[u8]| [field(1, key.as_bytes()), field(2, value)].concat();
    let mut message = Vec::new();
    for (key, value) in resource {
        message.extend(field(1, &pair(key, &text(value))));
    }
    let resource = field(1, &message);
    let mut all = resource;
    for (key, value) in attributes {
        all.extend(field(2, &pair(key, &text(value))));
    }
    if !keys.is_empty() {
        let list: Vec<u8> = keys.iter().flat_map(|key| field(1, &text(key))).collect();
        all.extend(field(2, &pair("threadlocal.attribute_key_map", &field(5, &list))));
    }
    all
}

fn shop() -> Vec<u8> {
    payload(
        &[("service.name", "shop"), ("host.name", "a"), ("service.name", "again")],
        &[("threadlocal.schema_version", "tls_v1"), ("other", "x")],
        &["http.route", "user"],
    )
}

#[test]
fn a_context_is_read_whole() {
    let published = read_at(&memory(shop(), |_, _| {}), Avma(HEADER)).unwrap();
    let text = |text: &str| ContextValue::Text(text.into());
    let resource = vec![("service.name".into(), text("shop")), ("host.name".into(), text("a"))];
    let attribute_keys = vec!["http.route".into(), "user".into()];
    let threads = Some(ThreadContexts::Records { attribute_keys });
    assert_eq!(*published.context, ProcessContext { resource, threads });
    assert_eq!((published.header, published.published_ns), (Avma(HEADER), 7));
}

#[test]
fn what_changes_while_it_is_read_is_read_again_three_times_at_most() {
    let publish =
        |header: &mut [u8; HEADER_BYTES], at: u64| header[16..24].copy_from_slice(&at.to_ne_bytes());
    // Changed once: the last header read differs from the first.
    let once = memory(shop(), |read, header| {
        if read == 3 {
            publish(header, 8);
        }
    });
    assert_eq!(read_at(&once, Avma(HEADER)).unwrap().published_ns, 8);
    assert_eq!(once.reads.get(), 6);
    // Changed again and again.
    let always = memory(shop(), |read, header| publish(header, read.into()));
    assert!(matches!(read_at(&always, Avma(HEADER)), Err(ContextError::Busy)));
    assert_eq!(always.reads.get(), 9);
    let never_done = memory(shop(), |_, header| publish(header, 0));
    assert!(matches!(read_at(&never_done, Avma(HEADER)), Err(ContextError::Busy)));
    // The payload is unmapped because a newer one is elsewhere.
    let moved = memory(shop(), |read, header| match read {
        1 => header[24..32].copy_from_slice(&u64::MAX.to_ne_bytes()),
        3 => header.copy_from_slice(&header_of(VERSION, shop().len() as u32, 9, PAYLOAD)),
        _ => {}
    });
    assert_eq!(read_at(&moved, Avma(HEADER)).unwrap().published_ns, 9);
}

#[test]
fn what_is_no_context_is_refused_by_its_reason() {
    let with = |header: [u8; HEADER_BYTES]| {
        let memory = memory(shop(), |_, _| {});
        *memory.header.borrow_mut() = header;
        read_at(&memory, Avma(HEADER))
    };
    let bytes = shop().len() as u32;
    assert!(matches!(with(header_of(3, bytes, 7, PAYLOAD)), Err(ContextError::Version(3))));
    assert!(matches!(with(header_of(2, 65_537, 7, PAYLOAD)), Err(ContextError::TooLong(65_537))));
    assert!(matches!(with(header_of(2, u32::MAX, 7, 0)), Err(ContextError::TooLong(u32::MAX))));
    assert!(matches!(with(header_of(2, bytes + 1, 7, PAYLOAD)), Err(ContextError::Unreadable(_))));
    assert!(matches!(with(header_of(2, bytes, 7, u64::MAX)), Err(ContextError::Unreadable(_))));
    assert!(matches!(with(header_of(2, bytes - 1, 7, PAYLOAD)), Err(ContextError::Malformed(_))));
    assert!(matches!(with([0; HEADER_BYTES]), Err(ContextError::Absent)));
}

#[test]
fn a_change_is_seen_by_its_time() {
    let memory = memory(shop(), |_, _| {});
    let published = read_at(&memory, Avma(HEADER)).unwrap();
    assert!(published.is_current(&memory));
    memory.header.borrow_mut()[16..24].copy_from_slice(&8_u64.to_ne_bytes());
    assert!(!published.is_current(&memory));
    *memory.header.borrow_mut() = [0; HEADER_BYTES];
    assert!(!published.is_current(&memory));
}

#[test]
fn a_mapping_is_found_by_its_name_and_never_an_executable_one() {
    let maps = b"1000-2000 rw-p 0 00:01 9                     /memfd:OTEL_CTX (deleted)\n\
        2000-3000 rw-p 0 00:01 9                     /memfd:OTEL_CTX_2 (deleted)\n\
        3000-4000 rw-p 0 00:00 0                     [anon:OTEL_CTX]\n\
        4000-5000 rwxp 0 00:00 0                     [anon:OTEL_CTX]\n\
        5000-6000 rw-p 0 00:00 0                     /x/[anon:OTEL_CTX]\n\
        6000-7000 rw-s 0 00:01 9                     [anon_shmem:OTEL_CTX]\n\
        7000-7010 rw-p 0 00:00 0                     [anon:OTEL_CTX]\n";
    assert_eq!(find_context_mappings(&maps[..]).unwrap(), [Avma(0x1000), Avma(0x3000), Avma(0x6000)]);
    let many = b"1000-2000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n".repeat(1000);
    assert_eq!(find_context_mappings(&many[..]).unwrap().len(), MAPPINGS_MAX);
}

#[test]
fn the_first_mapping_that_holds_one_counts() {
    let maps = b"4000-5000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n1000-2000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n";
    let memory = memory(shop(), |_, _| {});
    let read = |maps: &[u8]| read_process_context(find_context_mappings(maps).unwrap(), &memory);
    assert_eq!(read(maps).unwrap().header, Avma(HEADER));
    assert!(matches!(read(&maps[..41]), Err(ContextError::Unreadable(_))));
    assert!(matches!(read(b""), Err(ContextError::Absent)));
}

#[test]
fn no_payload_makes_more_than_is_bounded() {
    let many: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "v")).collect();
    let keys: Vec<&str> = many.iter().map(String::as_str).collect();
    let schema = [("threadlocal.schema_version", "tlsdesc_v1_dev")];
    let context = ProcessContext::parse(&payload(&pairs, &schema, &keys)).unwrap();
    assert_eq!(context.resource.len(), 128);
    let Some(ThreadContexts::Records { attribute_keys }) = context.threads else { panic!("no records") };
    assert_eq!((attribute_keys.len(), &*attribute_keys[255]), (256, "k255"));
    let long = "k".repeat(256);
    assert_eq!(
        ProcessContext::parse(&payload(&[(&long, "v")], &[], &[])).unwrap(),
        ProcessContext::default()
    );
    let unknown = payload(&[], &[("threadlocal.schema_version", "tls_v9")], &["a"]);
    assert_eq!(ProcessContext::parse(&unknown).unwrap().threads, None);
}

proptest! {
    #[test]
    fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        if let Ok(context) = ProcessContext::parse(&bytes) {
            prop_assert!(context.resource.iter().all(|(key, _)| !key.is_empty()));
        }
    }

    #[test]
    fn any_part_of_a_payload_changed_is_read_or_refused(at in 0_usize..200, byte: u8) {
        let mut bytes = shop();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = ProcessContext::parse(&bytes);
    }

    #[test]
    fn any_header_is_read_or_refused(bytes: [u8; HEADER_BYTES], signed: bool) {
        let memory = memory(shop(), |_, _| {});
        *memory.header.borrow_mut() = bytes;
        if signed {
            memory.header.borrow_mut()[..8].copy_from_slice(SIGNATURE);
            memory.header.borrow_mut()[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        }
        let _ = read_at(&memory, Avma(HEADER));
        prop_assert!(memory.reads.get() <= 9);
    }

    #[test]
    fn what_was_written_is_read(pairs in prop::collection::vec(("[a-z.]{1,20}", ".{0,40}"), 0..20)) {
        let given: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let context = ProcessContext::parse(&payload(&given, &[], &[])).unwrap();
        for (key, value) in &context.resource {
            let first = given.iter().find(|(given, _)| *given == &**key).unwrap();
            prop_assert_eq!(value, &ContextValue::Text(first.1.into()));
        }
    }
}
