//! `_Py_DebugOffsets`: the offsets that an interpreter publishes for debuggers, since 3.13.
//!
//! Source: `Include/internal/pycore_runtime.h` (3.13), `pycore_debug_offsets.h` (3.14). All fields are 8 bytes. The structure
//! differs between minor versions only.

use super::layout::{
    BytecodeCopies, Groups, INTERNED_BITS, InstructionForm, Layout, LineForm, NameLayout, ObjectHead,
    ThreadList,
};

/// Bytes of the structure that are read.
pub(super) const OFFSETS_BYTES: usize = 8 * WORDS;
const WORDS: usize = 81;
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Offsets are smaller in every build.
const OFFSET_MAX: u64 = 4096;

/// Indices of fields, in words, of 3.13 and 3.14.
struct FieldIndices {
    thread_state: usize,
    frame: usize,
    code: usize,
    bytes: usize,
}

/// Where each structure's description starts: its size.
const fn fields(minor: u8) -> Option<FieldIndices> {
    match minor {
        13 => Some(FieldIndices { thread_state: 19, frame: 28, code: 34, bytes: 64 }),
        14 => Some(FieldIndices { thread_state: 22, frame: 31, code: 39, bytes: 74 }),
        _ => None,
    }
}

/// The layout that the structure describes; `None` if it is not that of 3.`minor`, or of a build that is not supported.
pub(super) fn layout(bytes: &[u8], minor: u8) -> Option<Layout> {
    let (words, _) = bytes.as_chunks();
    let word = |at: usize| words.get(at).copied().map(u64::from_le_bytes);
    let offset =
        |at: usize| word(at).filter(|offset| *offset < OFFSET_MAX).and_then(|offset| offset.try_into().ok());
    let FieldIndices { thread_state, frame, code, bytes: bytes_object } = fields(minor)?;
    // Py_VERSION_HEX, and whether it is a build without the global interpreter lock.
    let is_known = words.first() == Some(COOKIE) && word(1)? >> 16 == 0x0300 | u64::from(minor);
    let (head, copies) = match (word(2)?, minor) {
        (0, _) => (ObjectHead::Locked, None),
        (1, 13) => (ObjectHead::FreeThreaded, None),
        (1, _) => {
            let copies = BytecodeCopies { number: offset(frame + 7)?, array: offset(code + 10)? };
            (ObjectHead::FreeThreaded, Some(copies))
        }
        _ => return None,
    };
    let has_known_objects = [(2, head.bytes_data()), (4, head.text_state()), (5, head.size())]
        .iter()
        .all(|(field, known)| offset(bytes_object + field) == Some(*known));
    if !is_known || !has_known_objects {
        return None;
    }
    let (path, name, line_table) = (offset(code + 1)?, offset(code + 3)?, offset(code + 4)?);
    let (argument_count, owner): (u16, u16) = (offset(code + 6)?, offset(frame + 5)?);
    let ascii_bytes: u16 = offset(bytes_object + 6)?;
    let identity_start = argument_count & !7;
    let identity_bytes = line_table.checked_add(8)?.checked_sub(identity_start)?;
    let layout = Layout {
        groups: Groups::EndsAtShim,
        thread_id: offset(thread_state + 5)?,
        cframe: None,
        current_frame: offset(thread_state + 4)?,
        previous: offset(frame + 1)?,
        code: offset(frame + 2)?,
        instruction: offset(frame + 3)?,
        owner,
        frame_bytes: 0,
        instruction_form: InstructionForm::Pointer,
        bytecode: offset(code + 9)?,
        copies,
        identity: (identity_start, identity_bytes),
        identity_has_texts: false,
        names: NameLayout {
            path,
            name,
            line_table,
            first_line: offset(code + 5)?,
            ascii_bytes,
            // Also the length and the address of its UTF-8 form.
            compact_bytes: ascii_bytes.checked_add(16)?,
            line_form: LineForm::Locations,
            head,
            interned_bits: if copies.is_some() { u8::BITS as u8 } else { INTERNED_BITS },
        },
    };
    // The number of a copy is read as a word.
    let copy_end = copies.map_or(0, |copies| copies.number + 8);
    let ends = [layout.previous + 8, layout.code + 8, layout.instruction + 8, owner + 1, copy_end];
    let frame_bytes = ends.into_iter().max()?.next_multiple_of(8);
    let is_sane = frame_bytes <= 128
        && identity_bytes.is_multiple_of(8)
        && (24..=96).contains(&identity_bytes)
        && [path, name, line_table, layout.names.first_line].iter().all(|field| *field >= identity_start)
        && [path, name, layout.names.first_line].iter().all(|field| *field < line_table)
        && copies.is_none_or(|copies| copies.array >= line_table && copies.array < layout.bytecode);
    is_sane.then_some(Layout { frame_bytes, ..layout })
}

/// Where the structure says that the threads of an interpreter are listed, if it is that of 3.`minor`.
pub(super) fn thread_list(bytes: &[u8], minor: u8) -> Option<ThreadList> {
    /// `runtime_state.interpreters_head` and `interpreter_state.threads_head`, in words.
    const INTERPRETERS_HEAD: usize = 5;
    const THREADS_HEAD: usize = 9;
    /// Of these two structures, which are larger than the others.
    const OFFSET_MAX: u64 = 1 << 20;
    let (words, _) = bytes.as_chunks();
    let offset = |at: usize| {
        let offset = words.get(at).copied().map(u64::from_le_bytes);
        offset.filter(|offset| *offset < OFFSET_MAX)?.try_into().ok()
    };
    Some(ThreadList {
        interpreter: offset(INTERPRETERS_HEAD)?,
        first_thread: offset(THREADS_HEAD)?,
        next_thread: offset(fields(minor)?.thread_state + 2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words that 3.13.0 publishes, and where 3.14.10 differs.
    fn words(minor: u8) -> Vec<u64> {
        let at = fields(minor).unwrap();
        let mut words = vec![0; WORDS];
        words[0] = u64::from_le_bytes(*COOKIE);
        words[1] = 0x0300_00f0 | u64::from(minor) << 16;
        let thread_state = [328, 0, 8, 16, 0x48, 0x98, 0xa0, 0xf8, 0x20];
        let frame = if minor == 13 { [80, 8, 0, 0x38, 72, 0x46] } else { [88, 8, 0, 0x38, 80, 0x4a] };
        let code =
            [208, 0x70, 0x78, 0x80, 0x88, 0x44, 0x34, 0x60, 0x68, if minor == 13 { 0xc8 } else { 0xd0 }];
        for (start, fields) in [
            (at.thread_state, &thread_state[..]),
            (at.frame, &frame),
            (at.code, &code),
            (at.bytes, &[40, 16, 32, 64, 32, 16, 40]),
        ] {
            words[start..][..fields.len()].copy_from_slice(fields);
        }
        words
    }

    fn of(words: &[u64], minor: u8) -> Option<Layout> {
        layout(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), minor)
    }

    #[test]
    fn a_layout_is_read() {
        let layout = of(&words(13), 13).unwrap();
        assert_eq!((layout.thread_id, layout.current_frame, layout.cframe), (0x98, 0x48, None));
        assert_eq!((layout.owner, layout.frame_bytes, layout.bytecode), (0x46, 72, 0xc8));
        assert_eq!(layout.identity, (48, 96));
        let layout = of(&words(14), 14).unwrap();
        assert_eq!((layout.owner, layout.frame_bytes, layout.bytecode), (0x4a, 80, 0xd0));
        assert_eq!(layout.names.head, ObjectHead::Locked);
    }

    /// Objects of 3.13t have a larger head.
    #[test]
    fn a_layout_of_a_build_without_the_lock_is_read() {
        let mut words = words(13);
        words[2] = 1;
        let at = fields(13).unwrap();
        words[at.code + 1..][..9].iter_mut().for_each(|offset| *offset += 16);
        words[at.bytes..][..7].copy_from_slice(&[56, 32, 48, 64, 48, 32, 56]);
        let layout = of(&words, 13).unwrap();
        assert_eq!((layout.bytecode, layout.identity), (0xd8, (64, 96)));
        assert_eq!((layout.names.head, layout.names.ascii_bytes), (ObjectHead::FreeThreaded, 56));
        assert_eq!(layout.copies, None);
    }

    /// In 3.14t, frames also have the number of the copy of the bytecode that their thread executes.
    #[test]
    fn a_layout_with_copies_of_the_bytecode_is_read() {
        let words = words_of_copies();
        let layout = of(&words, 14).unwrap();
        assert_eq!((layout.owner, layout.frame_bytes, layout.bytecode), (0x4e, 80, 0xe8));
        assert_eq!(layout.copies, Some(BytecodeCopies { number: 72, array: 0xe0 }));
        assert_eq!((layout.identity, layout.names.interned_bits), ((64, 96), 8));
        let at = fields(14).unwrap();
        for (what, field, value) in [
            ("a number that no frame has", at.frame + 7, 1 << 40),
            ("an array that no code object has", at.code + 10, 1 << 40),
            ("an array in the bytecode", at.code + 10, 0xe8),
            ("an array in the identity", at.code + 10, 64),
            ("no array", at.code + 10, 0),
        ] {
            let mut words = words.clone();
            words[field] = value;
            assert_eq!(of(&words, 14), None, "{what}");
        }
    }

    /// What 3.14.4t publishes, as far as it is read.
    fn words_of_copies() -> Vec<u64> {
        let mut words = words(14);
        words[2] = 1;
        let at = fields(14).unwrap();
        words[at.frame..][..8].copy_from_slice(&[88, 8, 0, 0x38, 80, 0x4e, 64, 72]);
        words[at.code + 1..][..10].copy_from_slice(&[128, 136, 144, 152, 84, 68, 112, 120, 0xe8, 0xe0]);
        words[at.bytes..][..7].copy_from_slice(&[56, 32, 48, 80, 48, 32, 56]);
        words
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for minor in [13, 14] {
            let at = fields(minor).unwrap();
            for (what, field, value) in [
                ("another cookie", 0, 0),
                ("another version", 1, 0x030f_00f0),
                ("without the lock, but with objects as with it", 2, 1),
                ("of an unknown kind", 2, 2),
                ("an offset that no field has", at.frame + 3, 1 << 40),
                ("a frame that is too large", at.frame + 3, 128),
                ("fields that are far apart", at.code + 4, 512),
                ("a path outside of the identity", at.code + 1, 8),
                ("other strings", at.bytes + 4, 40),
            ] {
                let mut words = words(minor);
                words[field] = value;
                assert_eq!(of(&words, minor), None, "{what}");
            }
            assert_eq!(of(&words(minor)[..60], minor), None, "cut");
        }
        assert_eq!(of(&words(13), 14), None);
        assert_eq!(of(&words(13), 15), None);
    }
}
