//! The code of functions of real builds.

use proptest::prelude::*;

use super::super::FrameLink;
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
