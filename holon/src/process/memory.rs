//! Memory settings, so that freed memory returns to the system.
//!
//! After a logical cluster of 100,000 objects is deleted, its memory should be available to other processes. The
//! allocator returns pages a second after the last object in them was freed, 64 KiB at a time. Huge pages undo that:
//! the kernel later refills a page of 2 MiB as long as any part of it is in use. So this process refuses huge pages.

use mimalloc::MiMalloc;

/// Faster than malloc, and needs only a C compiler to build: docs/decisions/0009-memory-allocator.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Turns off transparent huge pages. Must be called before the process allocates much.
///
/// The allocator itself requests none (its feature `no_thp`), but many systems use them anyway.
pub(crate) fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    // Fails on kernels without huge pages, which is harmless.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
