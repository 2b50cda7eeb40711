//! The code of functions of real builds.

use proptest::prelude::*;

use super::super::{Activation, FrameLink};
use super::*;

fn bytes(digits: &str) -> Vec<u8> {
    let (pairs, _) = digits.as_bytes().as_chunks::<2>();
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn the_variable_of_a_getter_is_found_in_each_model() {
    use ThreadLocal::{Got, Static};
    use TlsGotEntry::{Descriptor, Module, Offset};

    for (what, start, code, expected) in [
        ("python3.14 of Debian", 0x77_4880, "f30f1efa64488b0425e8ffffffc3", Static(-24)),
        (
            "libpython3.14 of Debian",
            0x36_1040,
            "f30f1efa4883ec08488d3de1544400e89c0cd4ff488b80080000004883c408c3",
            Got(Module(Svma(0x7a_6530), 8)),
        ),
        (
            "libpython3.12 of pyenv",
            0x2d_6310,
            "4883ec0866488d3dd4db2600666648e8bc22e3ff488b004883c408c3",
            Got(Module(Svma(0x54_3ef0), 0)),
        ),
        ("clang", 0x1110, "50488d3d982e0000e813ffffff488b801800000059c3", Got(Module(Svma(0x3fb0), 24))),
        (
            "gcc -O0",
            0x1109,
            "554889e566488d3d9b2e0000666648e813ffffff488b005dc3",
            Got(Module(Svma(0x3fb0), 0)),
        ),
        (
            "gcc -mtls-dialect=gnu2",
            0x1110,
            "4883ec08488d05e52e0000ff1064488b004883c408c3",
            Got(Descriptor(Svma(0x4000), 0)),
        ),
        (
            "gcc -O0 -mtls-dialect=gnu2",
            0x1109,
            "554889e5488d05ec2e0000ff1064488b1425000000004801d0488b005dc3",
            Got(Descriptor(Svma(0x4000), 0)),
        ),
        ("initial exec", 0x1100, "488b05b92e000064488b00c3", Got(Offset(Svma(0x3fc0), 0))),
        ("initial exec, -O0", 0x1100, "554889e5488b05b52e000064488b005dc3", Got(Offset(Svma(0x3fc0), 0))),
        (
            "the thread pointer first",
            0x1000,
            "64488b04250000000048030500000000488b4010c3",
            Got(Offset(Svma(0x1010), 16)),
        ),
    ] {
        assert_eq!(thread_local(&bytes(code), Svma(start)), Some(expected), "{what}");
    }
    for (what, code) in [
        ("nothing", ""),
        ("null", "31c0c3"),
        ("a global variable", "488b05b92e0000488b00c3"),
        ("a call without an argument", "e800000000488b00c3"),
        ("a store", "6448892500000000c3"),
    ] {
        assert_eq!(thread_local(&bytes(code), Svma(0x1000)), None, "{what}");
    }
}

#[test]
fn the_argument_of_a_getter_is_found() {
    for (what, start, code, expected) in [
        (
            "libpython3.11 of pyenv",
            0x29_6520,
            "488b0509d81a004883b84802000000740f488db850020000e9f33be6ff0f1f0031c0c3",
            Argument::ThroughWord(Svma(0x44_3d30), 0x250),
        ),
        (
            "python3.11 of Debian",
            0x4f_7c30,
            "48833d503d5600000f841fc8f2ff8b3d503d5600e9a78af2ff",
            Argument::Value(Svma(0xa5_b994)),
        ),
        (
            "python3.14 of Debian",
            0x42_c79a,
            "f30f1efa833d3b49770000740abfe010ba00e97f2e110031c0c3",
            Argument::Address(Svma(0xba_10e0)),
        ),
        (
            "libpython3.14 of Debian",
            0x36_2a80,
            "f30f1efa488b05e540440053488d98200900004889dfe845f3010085c074114889df5be9c8f10100",
            Argument::ThroughWord(Svma(0x7a_6b70), 0x920),
        ),
    ] {
        assert_eq!(first_argument(&bytes(code), Svma(start)), Some(expected), "{what}");
    }
    assert_eq!(first_argument(&bytes("31c0c3"), Svma(0)), None);
}

#[test]
fn jumps_that_stay_inside_are_left_out() {
    // jmp +0, jne -0x102, jmp (indirect), call, jmp +0x1000, the same again.
    let code = bytes("eb000f85f8feffffffe0e800100000e9001000000f84fa0f0000");
    assert_eq!(jumps_out(&code, Svma(0x1000)), [Svma(0xf00), Svma(0x2014)]);
}

proptest! {
    #[test]
    fn any_code_is_followed_to_its_end(code in prop::collection::vec(any::<u8>(), 0..FUNCTION_BYTES_MAX), start: u64) {
        let _ = thread_local(&code, Svma(start));
        let _ = first_argument(&code, Svma(start));
        let _ = jumps_out(&code, Svma(start));
    }
}

/// The loops of pyenv's builds: where they begin, and of 3.9 also where they end.
#[test]
fn the_code_that_links_frames_is_found() {
    let part = |start, code| (start, bytes(code));
    let of_3_9 = [
        part(
            0x6_6920,
            "415741564155415455534881ecf8000000895424244885ff0f84928800008b4720488b4f104889fd4889f383c001\
             48894c24088947203b41400f8fc90400008b453048895d1885c0",
        ),
        part(
            0x6_69b6,
            "4531ff488b4318836d20014c89fa31f6c6437400488d0d7fb224004889ef48894518e823c5ffffe95c040000",
        ),
        part(0x6_6e3c, "31c04881c4f80000005b5d415c415d415e415fc3"),
    ];
    let link = FrameLink { cframe: None, current_frame: 24, previous: 24 };
    let found = [0x6_6920..0x6_6966, 0x6_69d8..0x6_69e2, 0x6_6e3e..0x6_6e50];
    assert_eq!(unlinked_code(&of_3_9, link), found);
    // Without what it does before it returns, all of it is doubtful; so it is with a frame that has other fields.
    assert_eq!(unlinked_code(&of_3_9[..1], link), []);
    assert_eq!(unlinked_code(&of_3_9, FrameLink { previous: 32, ..link }), []);
    // The code to which it jumps before it returns may be that of another function.
    assert_eq!(unlinked_code(&of_3_9[..2], link), found[..2]);

    let of_3_11 = [part(
        0xf_ab70,
        "415741564155415455534881ec180100004885ff0f8472970000488b47104889f5488db424a00000004989fc66480f6e\
         c54889442420488b47380fb60866480f6ed848897738488b7008660f6cc38b4720c6454401888c24a000000048897530\
         0f118424a800000085d2",
    )];
    let link = FrameLink { cframe: Some(56), current_frame: 8, previous: 48 };
    let found = unlinked_code(&of_3_11, link);
    assert_eq!((found.len(), &found[0]), (1, &(0xf_ab70..0xf_abd8)));
    // Until both the current frame and the frame before it are written: one store does it.
    assert_eq!(unlinked_code(&of_3_11, FrameLink { current_frame: 24, ..link }), []);
    assert_eq!(unlinked_code(&[], link), []);
}

proptest! {
    #[test]
    fn code_of_any_kind_is_searched_to_its_end(code in proptest::collection::vec(any::<u8>(), 0..256), has_cframe: bool) {
        let link = FrameLink { cframe: has_cframe.then_some(56), current_frame: 8, previous: 48 };
        let end = 0x1000 + code.len() as u64;
        let found = unlinked_code(&[(0x1000, code)], link);
        prop_assert!(found.iter().all(|range| range.start >= 0x1000 && range.start < range.end && range.end <= end));
        prop_assert!(found.is_sorted_by(|a, b| a.end < b.start));
    }
}

/// CPython 3.14.6 of python-build-standalone, which BOLT has laid out: its loop calls the first instruction through a table.
const TABLE: Svma = Svma(0xfc_6860);

#[test]
fn the_table_of_a_loop_of_tail_calls_is_found() {
    // From the load of the first instruction on; and a call through a pointer in the table of a class.
    let code = bytes("410fb73f400fb6c7c1ef08ff14c56068fc00ebcb");
    assert_eq!(dispatch_table(&code, Svma(0x1c2_ecbd)), Some(TABLE));
    assert_eq!(dispatch_table(&bytes("488b07ff5010c3"), Svma(0)), None);
    let found = |code: &str| calls_through(&bytes(code), Svma(0x1000), TABLE).collect::<Vec<_>>();
    assert_eq!(found("410fb73f400fb6c7c1ef08ff14c56068fc00ebcb"), [Svma(0x100b)]);
    // With %r10 for the number; a jump; through the next word; through a pointer.
    assert_eq!(found("4290ff14d56068fc00"), [Svma(0x1002)]);
    for code in ["ff24c56068fc00", "ff14c56868fc00", "ff14256068fc00", "ff14c56068fc"] {
        assert_eq!(found(code), [], "{code}");
    }
}

/// What `_PyEval_Vector` and `gen_send_ex2` have of the loop, and what surrounds it there.
#[test]
fn activations_begin_behind_the_link_and_end_with_the_call() {
    let of_vector = (
        0x1a1_44f1,
        bytes(
            "498b464848898538ffffff488d8530ffffff49894424084d89664848c7458001000000498b86100100004885c00f8585d4\
             3400418b46308d48ff41894e3085c00f8e9b422b004d8b7c24384d8b6c2440410fb73f400fb6c7c1ef0848813cc56068fc\
             000041a1017520e8a1fbffff4881c4380100005b415c415d415e415f5dc34883c801e960fdffff48813cc56068fc008a19\
             a0017507e8fdd3feffebd0ff14c56068fc00ebc7",
        ),
    );
    let activation = |code, has_call| Activation { code, has_call };
    let of_calls = [activation(0x1a1_450c..0x1a1_455f, true), activation(0x1a1_457a..0x1a1_4596, true)];
    assert_eq!(activations(std::slice::from_ref(&of_vector), TABLE, 0x48), of_calls);
    // What it jumps to when a thread is being traced, which returns to it.
    let of_tracing = (0x1d6_19a9, bytes("e800000000e9712bcbff"));
    let with_tracing = activations(&[of_vector.clone(), of_tracing], TABLE, 0x48);
    assert_eq!(with_tracing[..2], of_calls);
    assert_eq!(with_tracing[2..], [activation(0x1d6_19a9..0x1d6_19b3, false)]);
    // Another field, or another table.
    assert_eq!(activations(std::slice::from_ref(&of_vector), TABLE, 0x50), []);
    assert_eq!(activations(&[of_vector], Svma(0xfc_6000), 0x48), []);

    // What it does with the result is not in it.
    let of_send = (
        0x1a1_2ae8,
        bytes(
            "4d89664848c745c001000000498b86100100004885c00f85abcf3400418b46308d48ff41894e3085c00f8e69cf34004c8b\
             bf800000004c8baf88000000410fb73f400fb6c7c1ef0848813cc56068fc008a19a0017526e847eefeff4885c07445488b\
             4dd0807943fd761b4881c4b80000005b415c415d415e415f5dc3ff14c56068fc00ebd6483d501d5b01752b31c0ebe1",
        ),
    );
    let found = activations(&[of_send], TABLE, 0x48);
    assert_eq!(found, [activation(0x1a1_2aec..0x1a1_2b43, true), activation(0x1a1_2b64..0x1a1_2b6b, true)]);
}

proptest! {
    #[test]
    fn activations_in_any_code_are_inside_it(code in prop::collection::vec(any::<u8>(), 0..256), field in any::<u16>()) {
        let end = 0x1000 + code.len() as u64;
        let table = dispatch_table(&code, Svma(0x1000)).unwrap_or(TABLE);
        let found = activations(&[(0x1000, code)], table, field);
        prop_assert!(found.iter().all(|found| found.code.start >= 0x1000 && found.code.end <= end));
        prop_assert!(found.is_sorted_by(|a, b| a.code.end < b.code.start));
    }
}
