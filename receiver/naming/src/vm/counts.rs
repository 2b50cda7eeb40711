//! How look-ups of functions ended.

/// Why functions of a process have no names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VmObstacle {
    /// We may not read its memory.
    Denied,
    /// It had ended before its functions were read.
    Ended,
}

/// How look-ups of functions ended, one for each function of a process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmNameCounts {
    /// Functions whose name was read.
    pub named: u64,
    /// Of those named, the ones of compiled code that was not found any more: without inlined functions, and with their first line.
    pub without_code: u64,
    /// Another function had the address when the name was read.
    pub replaced: u64,
    /// The function could not be read, or its content is invalid.
    pub unreadable: u64,
    /// Functions that were forgotten because the memory for names was used up.
    pub forgotten: u64,
}

impl std::ops::AddAssign for VmNameCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { named, without_code, replaced, unreadable, forgotten } = other;
        self.named += named;
        self.without_code += without_code;
        self.replaced += replaced;
        self.unreadable += unreadable;
        self.forgotten += forgotten;
    }
}
