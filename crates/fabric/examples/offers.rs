//! Prints the offers of each libfabric provider on this machine.
//!
//! `cargo run -p farreach-fabric --example offers [PROVIDER]`

#![allow(clippy::print_stdout, reason = "a program")]

use farreach_fabric::{Error, Hints, Info, Library};

fn main() -> Result<(), Error> {
    let library = Library::open()?;
    println!("libfabric {} from {}", library.version(), library.path().display());

    let hints = Hints::new();
    let hints = match std::env::args().nth(1) {
        Some(provider) => hints.provider(provider),
        None => hints,
    };
    for info in Info::query(&hints)? {
        println!(
            "\n{} {} ({}, fabric {}, domain {})",
            info.provider(),
            info.provider_version(),
            info.endpoint_type(),
            info.fabric(),
            info.domain()
        );
        println!("  protocol      {} {}", info.protocol(), info.protocol_version());
        println!("  address       {} {:?}", info.address_format(), info.source());
        println!("  capabilities  {:?}", info.capabilities());
        println!("  mode          {:?}, memory {:?}", info.mode(), info.mr_mode());
        println!("  order         {:?}, completions {:?}", info.transmit_order(), info.completion_order());
        println!(
            "  writes        ordered: {}, bytes up to {}",
            info.writes_ordered(),
            info.ordered_write_size()
        );
        println!(
            "  immediate     {} B, inject {} B, key {} B",
            info.immediate_size(),
            info.inject_size(),
            info.key_size()
        );
        println!("  message       at most {} B", info.message_size_max());
        println!("  queues        {} out, {} in", info.transmit_queue_size(), info.receive_queue_size());
        println!(
            "  buffers       {} out, {} in, {} remote",
            info.transmit_buffers_max(),
            info.receive_buffers_max(),
            info.remote_ranges_max()
        );
        println!(
            "  progress      {} control, {} data; threads {}; resources {}",
            info.control_progress(),
            info.data_progress(),
            info.threading(),
            info.resource_management()
        );
        if let Some(nic) = info.nic() {
            println!("  card          {nic:?}");
        }
    }
    Ok(())
}
