//! Memory for schedules, which make and drop a thousand small things each. What is freed is kept by
//! size, for the same thread, and taken again latest first: it is still in the processor's cache.
//!
//! Invariants: a block is as large as its class, and in one list or in use; lists belong to one
//! thread, and a block to whoever frees it. Blocks never go back to the system: the next schedule
//! needs as many. Larger ones are the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// Blocks differ in size by this much, and begin at multiples of it.
const STEP: usize = 16;
/// The largest block that is kept.
const LARGEST: usize = 4096;
/// What is asked of the system at once.
const CHUNK: usize = 256 * 1024;

/// What a thread has.
struct Pool {
    /// The block freed last, by size: the first word of each says which was before.
    free: [Cell<*mut u8>; LARGEST / STEP + 1],
    /// What is left of the chunk that was asked for last.
    rest: Cell<*mut u8>,
    left: Cell<usize>,
}

thread_local! {
    // Made without a call and never dropped, so that it is there whenever memory is asked for.
    static POOL: Pool = const {
        Pool {
            free: [const { Cell::new(null_mut()) }; LARGEST / STEP + 1],
            rest: Cell::new(null_mut()),
            left: Cell::new(0),
        }
    };
}

/// The allocator.
#[derive(Debug)]
pub(crate) struct Pools;

/// The class of what is kept; none if it is the system's.
#[inline]
fn class(layout: Layout) -> Option<usize> {
    let small = layout.size() <= LARGEST && layout.align() <= STEP;
    small.then(|| layout.size().div_ceil(STEP))
}

impl Pool {
    #[inline]
    fn take(&self, class: usize) -> *mut u8 {
        let block = self.free[class].get();
        if block.is_null() {
            return self.cut(class * STEP);
        }
        // SAFETY: a block of a list is at least one step long, begins at a multiple of it, and
        // holds what `keep` wrote.
        self.free[class].set(unsafe { block.cast::<*mut u8>().read() });
        block
    }

    /// Another block, off the chunk.
    #[cold]
    fn cut(&self, size: usize) -> *mut u8 {
        if self.left.get() < size {
            let chunk = Layout::from_size_align(CHUNK, STEP).expect("a small power of two");
            // SAFETY: it is not empty. What is left of the one before is given up.
            let rest = unsafe { System.alloc(chunk) };
            if rest.is_null() {
                return rest;
            }
            self.rest.set(rest);
            self.left.set(CHUNK);
        }
        let block = self.rest.get();
        // SAFETY: so much is left of the chunk.
        self.rest.set(unsafe { block.add(size) });
        self.left.set(self.left.get() - size);
        block
    }

    /// # Safety
    /// The block is of this class, and nobody uses it any more.
    #[inline]
    unsafe fn keep(&self, block: *mut u8, class: usize) {
        // SAFETY: it is as long as `take` needs it.
        unsafe { block.cast::<*mut u8>().write(self.free[class].get()) };
        self.free[class].set(block);
    }
}

// SAFETY: a block is at least as large as its layout and aligned as a step is; it is in no list
// while it is in use. Same layout, same class: what is freed goes where it came from.
unsafe impl GlobalAlloc for Pools {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => POOL.with(|pool| pool.take(class)),
            // SAFETY: as promised to this function.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            // SAFETY: it was taken with the same layout, and is given back.
            Some(class) => POOL.with(|pool| unsafe { pool.keep(block, class) }),
            // SAFETY: as promised to this function.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size is one that a layout may have.
        let grown = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (class(layout), class(grown)) {
            // SAFETY: as promised to this function.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            (before, after) if before == after => block,
            _ => {
                // SAFETY: both are as long as the shorter, and one of them is new.
                unsafe {
                    let moved = self.alloc(grown);
                    if !moved.is_null() {
                        let both = layout.size().min(size);
                        std::ptr::copy_nonoverlapping(block, moved, both);
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("small")
    }

    #[test]
    fn what_was_freed_last_is_taken_next() {
        let of = |size| unsafe { Pools.alloc(layout(size)) };
        let (one, other) = (of(100), of(100));
        assert_ne!(one, other);
        for block in [one, other] {
            assert_eq!(block.addr() % STEP, 0);
            unsafe { Pools.dealloc(block, layout(100)) };
        }
        assert_eq!([of(97), of(112)], [other, one], "they are of one class");
        assert_ne!(of(96), one);
    }

    #[test]
    fn what_grows_and_shrinks_keeps_what_it_holds() {
        for (before, after) in [
            (10, 16),
            (10, 17),
            (4096, 4097),
            (9000, 4096),
            (9000, 90_000),
        ] {
            let block = unsafe { Pools.alloc(layout(before)) };
            let both = before.min(after);
            unsafe { block.write_bytes(7, both) };
            let moved = unsafe { Pools.realloc(block, layout(before), after) };
            let kept = unsafe { std::slice::from_raw_parts(moved, both) };
            assert!(kept.iter().all(|byte| *byte == 7), "{before} to {after}");
            unsafe { Pools.dealloc(moved, layout(after)) };
        }
    }

    #[test]
    fn what_another_thread_frees_is_its_own() {
        let block = unsafe { Pools.alloc(layout(48)) }.expose_provenance();
        let taken = std::thread::spawn(move || {
            let block = std::ptr::with_exposed_provenance_mut(block);
            unsafe { Pools.dealloc(block, layout(48)) };
            unsafe { Pools.alloc(layout(48)) }.addr()
        });
        assert_eq!(taken.join().expect("no panic"), block);
        assert_ne!(unsafe { Pools.alloc(layout(48)) }.addr(), block);
    }

    #[test]
    fn more_than_a_chunk_is_there() {
        let blocks: Vec<*mut u8> = (0..200)
            .map(|_| unsafe { Pools.alloc(layout(4000)) })
            .collect();
        for (at, block) in (0..).zip(&blocks) {
            unsafe { block.write_bytes(at, 4000) };
        }
        for (at, block) in (0..).zip(&blocks) {
            assert_eq!(unsafe { block.add(3999).read() }, at);
        }
    }
}
