//! The contract of a [`Rail`](farreach_rail::Rail): one suite for simulated cards, libfabric and verbs.
//!
//! Each test gets two rails of one process with a link between them. What rails do differently
//! follows from their [properties](farreach_rail::Properties).

pub(crate) mod pair;
pub(crate) mod requests;

/// Makes a test of each part of the contract. Takes attributes for the tests, in
/// brackets, and the function that calls a part with its rails.
macro_rules! contract {
    ([$($attribute:tt)*] $run:path) => {
        $crate::contract::contract! { @tests [$($attribute)*] $run;
            a_write_lands_and_its_immediate_is_told
            a_write_without_bytes_tells_its_immediate
            several_pieces_are_written_as_one_range_up_to_the_limit
            a_read_fills_lent_parts
            atomics_are_there_where_the_rail_says_so
            messages_go_both_ways_and_not_beyond_their_longest
        }
    };
    (@tests $attributes:tt $run:path; $($test:ident)*) => {
        $($crate::contract::contract! { @test $attributes $run; $test })*
    };
    (@test [$($attribute:tt)*] $run:path; $test:ident) => {
        #[test]
        $($attribute)*
        fn $test() {
            $run($crate::contract::requests::$test);
        }
    };
}

pub(crate) use contract;
