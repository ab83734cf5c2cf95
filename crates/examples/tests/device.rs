//! The block store over Soft-RoCE, in a guest.

mod block_store;

/// They do not depend on the kernel.
mod one_guest {
    use farreach_testkit::{Device, on_host_a};

    use crate::block_store;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn two_workers_read_and_write_a_few_blocks() {
        on_host_a(|| {
            let (rail, options) = (Device::find().name, ["workers=2", "blocks=64"]);
            let last = block_store::workers_read_and_write_all_blocks(&rail, &options, 2, "rounds=100");
            assert_eq!(last, "64 blocks are good, 0 torn; 200 writes");
        });
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_worker_that_is_killed_leaves_the_store_and_the_others_at_work() {
        on_host_a(|| {
            block_store::a_worker_that_is_killed_leaves_the_store_and_the_others_at_work(
                &Device::find().name,
            );
        });
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_worker_that_is_stopped_loses_its_share_and_the_others_go_on() {
        on_host_a(|| {
            block_store::a_worker_that_is_stopped_loses_its_share_and_the_others_go_on(&Device::find().name);
        });
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store() {
        on_host_a(|| {
            block_store::workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store(
                &Device::find().name,
            );
        });
    }
}
