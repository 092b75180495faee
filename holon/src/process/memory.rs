//! Memory that is freed goes back to the system.
//!
//! After a logical cluster of 100,000 objects is deleted, what they took is to be there for others. The allocator gives
//! pages back a second after the last thing in them was freed, 64 KiB at a time. Where the system makes huge pages, that
//! is undone: a page of 2 MiB of which anything is in use is given back in parts, and then filled up again by the kernel,
//! in its own time, with nothing that anybody asked for. So this process has none.

use mimalloc::MiMalloc;

/// Faster than malloc, and it needs no more than a C compiler to build: docs/decisions/0009-memory-given-back.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// To be called before anything large is allocated.
///
/// The allocator asks for no huge pages (its feature `no_thp`), but many systems give them unasked.
pub(crate) fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    // A kernel that knows nothing of this has no huge pages to refuse.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
