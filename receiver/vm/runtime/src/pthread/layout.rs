/// The layout. Offsets are from the thread pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PthreadLayout {
    /// The structure itself.
    pub structure: i64,
    /// Where the values of keys are.
    pub values: KeyValues,
}

/// Where a thread has the values of pthread keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyValues {
    /// In blocks of 32 pairs of a generation and a value, as in glibc: the first block is in the structure (`specific_1stblock`), and
    /// so are the pointers to all (`specific`).
    Blocks {
        /// The first block.
        first: i64,
        /// The pointers to all blocks.
        pointers: i64,
    },
    /// In an array, to which the structure has a pointer, as in musl since 1.2.0 (`tsd`).
    Array {
        /// The pointer to the array.
        pointer: i64,
    },
}

/// The C library of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CLibrary {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
}

/// Pairs in a block (`PTHREAD_KEY_2NDLEVEL_SIZE`).
pub const BLOCK_PAIRS: u32 = 32;

/// The size of a pair.
pub const PAIR_BYTES: u32 = 16;
