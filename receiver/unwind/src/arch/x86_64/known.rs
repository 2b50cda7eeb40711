//! Code of C libraries and coroutines that is recognised by its bytes.

/// `mov $15,%rax; syscall` in its two encodings: `rt_sigreturn`.
pub(crate) const RT_SIGRETURN: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// `mov %rbx,%rsp`, by which `__start_context` moves to what `makecontext` stored higher on the stack. No function that
/// is called begins with it.
pub(crate) const COROUTINE_START: [u8; 3] = [0x48, 0x89, 0xdc];

/// The parts of a function that calls `clone`, by their first byte.
///
/// Up to the system call and after the jump, the caller runs on its own stack, which the function hasn't touched.
/// Between the return of the system call and the jump, the return value distinguishes parent from child.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct CloneParts {
    /// Where the system call returns to in both.
    pub(crate) returns: u32,
    /// Where the child continues, on its new and empty stack.
    pub(crate) child: u32,
    /// Where the parent continues.
    pub(crate) parent: u32,
}

impl CloneParts {
    /// `syscall; test %eax,%eax; jnz parent`.
    pub(crate) fn find(code: &[u8]) -> Option<Self> {
        let returns = code.windows(2).position(|bytes| bytes == [0x0f, 0x05])? + 2;
        let after = code.get(returns..)?;
        let after = after.strip_prefix(&[0x48]).unwrap_or(after);
        let [0x85, 0xc0, 0x75, distance, child @ ..] = after else { return None };
        let child = code.len() - child.len();
        let parent = child.checked_add_signed(isize::from(distance.cast_signed()))?;
        if !(child..code.len()).contains(&parent) {
            return None;
        }
        Some(Self {
            returns: u32::try_from(returns).ok()?,
            child: u32::try_from(child).ok()?,
            parent: u32::try_from(parent).ok()?,
        })
    }
}

/// The addresses that the code of a function computes by `lea offset(%rip),register`.
pub(crate) fn addresses_taken(function: u64, code: &[u8]) -> impl Iterator<Item = u64> {
    code.windows(7).enumerate().filter_map(move |(at, instruction)| {
        // The offset is relative to the next instruction.
        let [0x48 | 0x4c, 0x8d, modrm, a, b, c, d] = *instruction else { return None };
        let offset = i64::from(i32::from_le_bytes([a, b, c, d]));
        let next = function.checked_add(at as u64 + 7)?;
        next.checked_add_signed(offset).filter(|_| modrm & 0xc7 == 0x05)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole of musl's `__clone`.
    const MUSL_CLONE: [u8; 56] = [
        0x31, 0xc0, 0xb0, 0x38, 0x49, 0x89, 0xfb, 0x48, 0x89, 0xd7, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c,
        0x8b, 0x54, 0x24, 0x08, 0x4d, 0x89, 0xd9, 0x48, 0x83, 0xe6, 0xf0, 0x48, 0x83, 0xee, 0x08, 0x48, 0x89,
        0x0e, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0e, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1, 0x89, 0xc7, 0x31, 0xc0,
        0xb0, 0x3c, 0x0f, 0x05, 0xc3,
    ];

    #[test]
    fn a_clone_is_split_into_caller_and_child() {
        assert_eq!(CloneParts::find(&MUSL_CLONE), Some(CloneParts { returns: 37, child: 41, parent: 55 }));
    }

    #[test]
    fn a_clone_of_another_shape_is_not_understood() {
        assert_eq!(CloneParts::find(&MUSL_CLONE[..55]), None, "the parent's part lies beyond");
        assert_eq!(CloneParts::find(&MUSL_CLONE[..37]), None);
        let mut other = MUSL_CLONE;
        other[39] = 0x74;
        assert_eq!(CloneParts::find(&other), None, "the child is the one that jumps");
    }
}
