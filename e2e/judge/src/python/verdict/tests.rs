use super::super::expected::tests::WRITTEN;
use super::*;

const APP: &str = "/app.py";

fn frame(kind: FrameKind, name: &str, file: &str, line: u32) -> Frame {
    Frame { kind, name: name.to_owned(), file: file.to_owned(), line, is_inlined: false }
}

fn python(name: &str, line: u32) -> Frame {
    frame(FrameKind::Python, name, APP, line)
}

fn native(name: &str) -> Frame {
    frame(FrameKind::Native, name, "/usr/lib/libpython3.13.so.1.0", 0)
}

fn verdict(frames: &[Frame]) -> Verdict {
    let expected = Expected::from_json(WRITTEN).unwrap();
    Verdict::of(
        &expected,
        [&Stack { pid: 1, tid: 1, count: 1, frames: frames.to_vec(), is_truncated: false }],
    )
}

/// Equal, edges, in a library, wrong.
fn kinds(frames: &[Frame]) -> [u64; 4] {
    let verdict = verdict(frames);
    [verdict.equal, verdict.edges, verdict.in_library, verdict.wrong]
}

#[test]
fn a_stack_is_equal_with_native_frames_between() {
    let stack =
        [native("main"), python("main", 11), python("A.sort", 21), native("list_sort"), python("key", 33)];
    let verdict = verdict(&stack);
    assert_eq!((verdict.equal, verdict.wrong_names, verdict.lines, verdict.wrong_lines), (1, 0, 3, 0));
    assert_eq!((verdict.native.calls_from_c, verdict.native.without_native), (1, 0));
}

#[test]
fn a_callback_that_seems_to_come_from_python_is_found() {
    let verdict = verdict(&[python("main", 11), python("A.sort", 21), python("key", 33)]);
    assert_eq!((verdict.equal, verdict.native.without_native), (1, 1));
}

#[test]
fn frames_may_be_about_to_be_entered_or_left() {
    assert_eq!(kinds(&[python("main", 19)]), [0, 1, 0, 0]);
    assert_eq!(kinds(&[python("main", 11), python("A.sort", 20)]), [0, 1, 0, 0]);
    assert_eq!(kinds(&[python("main", 11), python("A.sort", 21), python("key", 30)]), [0, 1, 0, 0]);
    let library = frame(FrameKind::Python, "<lambda>", "/library.py", 5);
    assert_eq!(kinds(&[python("main", 19), library.clone()]), [0, 0, 1, 0]);
    assert_eq!(kinds(&[python("main", 19), library, python("<module>", 1)]), [0, 0, 1, 0]);
}

#[test]
fn other_frames_are_wrong() {
    for wrong in [
        &[python("A.sort", 21), python("key", 33)][..],
        &[python("main", 11), python("key", 33)],
        &[python("main", 11), python("A.sort", 21), python("A.sort", 21), python("key", 33)],
        &[python("main", 11), python("A.sort", 21), python("key", 33), python("other", 40)],
    ] {
        assert_eq!(kinds(wrong), [0, 0, 0, 1], "{wrong:?}");
    }
    assert_eq!(verdict(&[native("main")]).unjudged, 1);
}

#[test]
fn names_and_lines_are_judged_apart() {
    let of = |frames: &[Frame]| {
        let verdict = verdict(frames);
        (verdict.equal, verdict.wrong, verdict.wrong_names, verdict.wrong_lines)
    };
    assert_eq!(of(&[python("main", 19), python("A.sort", 21), python("key", 32)]), (1, 0, 0, 1));
    assert_eq!(of(&[python("main", 25), python("A.sort", 21), python("key", 32)]), (1, 0, 1, 1));
    assert_eq!(of(&[python("main", 11), python("sort", 21), python("key", 32)]), (0, 1, 1, 0));
    // Not known is not right, nor is it a wrong name.
    assert_eq!(of(&[python("main", 0), python("A.sort", 21), python("key", 32)]), (1, 0, 0, 1));
}

#[test]
fn each_activation_has_a_group() {
    let is_matched = |frames: &[Frame]| {
        let Activations { samples, matched, .. } = verdict(frames).activations;
        assert_eq!(samples, 1);
        matched == 1
    };
    let the_loop = || native("_PyEval_EvalFrameDefault");
    let group = [the_loop(), python("main", 11), python("A.sort", 21)];
    let nested = [&group[..], &[native("list_sort"), the_loop(), python("key", 33)]].concat();
    assert!(is_matched(&group));
    assert!(is_matched(&nested));
    assert!(is_matched(&[&nested[..], &[native("sha256")]].concat()));
    let inlined = Frame { is_inlined: true, ..native("Py_INCREF") };
    assert!(is_matched(&[the_loop(), inlined, python("main", 11)]));
    // The innermost activation may have none yet; others have.
    let none = || frame(FrameKind::Marker, "[Python frames missing: no_frames]", "", 0);
    assert!(is_matched(&[&group[..], &[native("list_sort"), the_loop(), none()]].concat()));
    assert!(!is_matched(&[&[the_loop(), none(), native("list_sort")], &group[..]].concat()));
    // Without frames, with those of another activation, and with none for these frames.
    assert!(!is_matched(&[&group[..], &[native("list_sort"), the_loop()]].concat()));
    assert!(!is_matched(&[the_loop(), native("list_sort"), python("main", 11)]));
    assert!(!is_matched(&[python("main", 11), the_loop(), python("A.sort", 21)]));
    assert!(!is_matched(&[&nested[..], &[native("list_sort"), python("key", 33)]].concat()));
}

#[test]
fn code_of_the_interpreters_own_is_no_function() {
    let internal = frame(FrameKind::Python, "__init__", "__init__", 0);
    let stack = [python("main", 11), python("A.sort", 21), internal, python("key", 33)];
    assert_eq!(kinds(&stack), [1, 0, 0, 0]);
}
