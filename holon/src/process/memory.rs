//! Freed memory is returned to the system.
//!
//! After a logical cluster of 100,000 objects is deleted, its memory should be available to others. The allocator
//! returns pages a second after the last object in them was freed, 64 KiB at a time. Huge pages undo that: the kernel
//! fills up a page of 2 MiB again, in its own time, as long as any part of it is in use. So this process refuses huge
//! pages.

use mimalloc::MiMalloc;

/// Faster than malloc, and it needs no more than a C compiler to build: docs/decisions/0009-memory-allocator.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Call it before the process allocates much.
///
/// The allocator asks for no huge pages (its feature `no_thp`), but many systems give them all the same.
pub(crate) fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    // It fails on kernels without huge pages.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
