//! The C library's heap, made to give back what was freed.
//!
//! Reading one large file takes tens of MiB for a moment. glibc's defaults keep them: it moves its threshold for memory
//! of its own up to the largest block that was freed, and from then on such blocks come from heaps that shrink at the
//! top only, of which there may be eight per CPU (mallopt(3), `M_MMAP_THRESHOLD`, `M_ARENA_MAX`).

/// Blocks from this size on have memory of their own, which goes back when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MEMORY_BYTES: libc::c_int = 128 << 10;

/// Heaps that threads share.
#[cfg(target_env = "gnu")]
const HEAPS_MAX: libc::c_int = 2;

/// Fixes the thresholds of the heap. To be called once, before there are threads. With another C library than glibc it
/// does nothing.
pub fn limit_heap() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, OWN_MEMORY_BYTES),
        (libc::M_TRIM_THRESHOLD, OWN_MEMORY_BYTES),
        (libc::M_ARENA_MAX, HEAPS_MAX),
    ] {
        // SAFETY: `mallopt` takes numbers alone. What it refuses stays as it was.
        unsafe { libc::mallopt(parameter, value) };
    }
}
