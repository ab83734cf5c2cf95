//! Shared memory is read-only.

use farreach_memory::Shared;

fn misuse(mut shared: Shared) {
    shared[0] = 1;
}

fn main() {}
