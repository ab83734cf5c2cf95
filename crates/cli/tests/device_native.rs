//! Operations that are verbs' own, by `farreach bench`: measured where card and kernel have them, and told missing elsewhere.

mod support {
    #[allow(dead_code, reason = "of other tests")]
    pub(crate) mod host;
    pub(crate) mod run;
    pub(crate) mod server;
}

use std::env;

use support::server::Server;

/// Debian 12's kernel has neither ATOMIC WRITE nor FLUSH.
fn has_newer_operations() -> bool {
    let kernel = env::var("FARREACH_KERNEL").expect("a guest tells its kernel");
    !kernel.starts_with("6.1.")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn atomic_write_and_flush_are_measured_where_the_kernel_has_them() {
    let server = Server::start_far(&[]);
    let words = ["-s", "1K", "--depths", "1,4", "-r", "1", "-D", "0.5", "--warm-up", "0.1", "--json"];
    let ended = server.run("bench", &[&["--op", "atomic-write,flush"], &words[..]].concat());
    let report = ended.json();
    let rows = report["rows"].as_array().expect("rows are a list");
    if !has_newer_operations() {
        assert_eq!((ended.code, rows.len()), (Some(3), 0), "{ended:#?}");
        for words in ["atomic-write was not measured", "flush was not measured", "by rdma_rxe of Linux 6.1."]
        {
            assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
        }
        return;
    }
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told: Vec<_> = rows.iter().map(|row| (row["operation"].as_str(), row["depth"].as_u64())).collect();
    let wanted = [("atomic-write", 1), ("atomic-write", 4), ("flush", 1), ("flush", 4)];
    assert_eq!(told, wanted.map(|(operation, depth)| (Some(operation), Some(depth))), "{report:#}");
    for row in rows {
        let operations = row["repetitions"][0]["operations"].as_u64();
        assert!(operations > Some(0), "{row:#}");
    }
}
