//! Configures the C library's heap to return freed memory.
//!
//! Reading one large file temporarily takes tens of MiB, which glibc keeps by default: it raises its mmap threshold to
//! the size of the largest freed block, and later blocks of such sizes come from heaps that shrink only at the top, of
//! which there may be eight per CPU (mallopt(3), `M_MMAP_THRESHOLD`, `M_ARENA_MAX`).

/// Blocks of at least this size are mapped separately, and unmapped when freed.
#[cfg(target_env = "gnu")]
const OWN_MEMORY_BYTES: libc::c_int = 128 << 10;

/// The number of heaps, which threads share.
#[cfg(target_env = "gnu")]
const HEAPS_MAX: libc::c_int = 2;

/// Fixes the thresholds of the heap. Call it once, before threads are started. It has no effect with C libraries other
/// than glibc.
pub fn limit_heap() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, OWN_MEMORY_BYTES),
        (libc::M_TRIM_THRESHOLD, OWN_MEMORY_BYTES),
        (libc::M_ARENA_MAX, HEAPS_MAX),
    ] {
        // SAFETY: `mallopt` takes only integers. A refused parameter keeps its value.
        unsafe { libc::mallopt(parameter, value) };
    }
}
