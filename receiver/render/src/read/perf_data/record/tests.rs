use super::*;

const CALL_STACK: PerfAttributes = PerfAttributes {
    sample_type: sample_type::IP
        | sample_type::CALLCHAIN
        | sample_type::RAW
        | sample_type::BRANCH_STACK
        | sample_type::READ,
    // Of a group, with IDs and both times.
    read_format: 0b1111,
    branch_sample_type: BRANCH_CALL_STACK | BRANCH_HW_INDEX,
    fixed_period: Some(17),
    ..PerfAttributes::EMPTY
};

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn parse_sample(body: &[u8], attributes: PerfAttributes) -> Option<PerfSample> {
    sample(Bytes(body), attributes)
}

#[test]
fn the_calls_that_the_cpu_recorded_are_the_user_part_of_the_stack() {
    let counters = words(&[2, 100, 100, 5, 1, 6, 2]);
    let chain = words(&[4, -128_i64 as u64, 0xffff_8000_0000_0010, CONTEXT_USER, 0x1004]);
    let raw = [&4_u32.to_le_bytes()[..], &[1, 2, 3, 4]].concat();
    let branches = words(&[2, 0, 0x2010, 0x1000, 0, 0x3010, 0x2000, 0]);
    let body = [words(&[0x1004]), counters, chain, raw, branches].concat();
    let sample = parse_sample(&body, CALL_STACK).unwrap();
    assert_eq!(sample.stack, [0xffff_8000_0000_0010, 0x1000, 0x2010, 0x3010]);
    assert_eq!((sample.period, sample.time_ns), (Some(17), None));
    for length in 0..body.len() {
        assert_eq!(parse_sample(&body[..length], CALL_STACK), None, "{length}");
    }
}

#[test]
fn callers_are_at_their_call_and_interrupted_code_where_it_was() {
    let attributes = PerfAttributes { sample_type: sample_type::CALLCHAIN, ..PerfAttributes::EMPTY };
    let chain =
        [-128_i64 as u64, 0xffff_8000_0000_0010, 0xffff_8000_0000_0021, CONTEXT_USER, 0x1004, 0x1105, 0];
    let body = [words(&[chain.len() as u64]), words(&chain)].concat();
    let sample = parse_sample(&body, attributes).unwrap();
    assert_eq!(sample.stack, [0xffff_8000_0000_0010, 0xffff_8000_0000_0020, 0x1004, 0x1104, 0]);
    assert_eq!(parse_sample(&words(&[u64::MAX]), attributes), None, "a length that overflows");
}

#[test]
fn data_is_no_code_and_old_records_have_no_protection() {
    let record =
        |kind, misc, body: &[u8]| PerfRecord { kind, misc, body: Bytes(body) }.content(PerfAttributes::EMPTY);
    let old = [words(&[7, 0x1000, 0x1000, 0x500]), b"/bin/app\0\0\0\0\0\0\0\0".to_vec()].concat();
    assert!(matches!(
        record(1, 0, &old),
        Some(Content::Mapping { pid: 7, start: 0x1000, end: 0x2000, file_offset: 0x500, ref path, identity: FileIdentity { build_id: None, inode: None } })
            if path == "/bin/app"
    ));
    assert_eq!(record(1, MISC_MMAP_DATA, &old), Some(Content::Other));
    let new = [words(&[7, 0x1000, 0x1000, 0x500, 0, 0, 0, 1]), b"x\0".to_vec()].concat();
    assert_eq!(record(10, 0, &new), Some(Content::Other), "readable, not executable");
    let code = [words(&[7, 0x1000, 0x1000, 0, 8 | 1 << 32, 99, 0, 4]), b"x\0".to_vec()].concat();
    let Some(Content::Mapping { identity, .. }) = record(10, 0, &code) else { panic!("no mapping") };
    assert_eq!(identity.inode, Some(PerfInode { major: 8, minor: 1, inode: 99 }));
    let program = [words(&[0xffff_8000_0000_0000, 32 | 1 << 32]), b"bpf_prog\0".to_vec()].concat();
    assert!(
        matches!(record(17, 0, &program), Some(Content::KernelFunction { ref name, .. }) if name == "bpf_prog")
    );
}
