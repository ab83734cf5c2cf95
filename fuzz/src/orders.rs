//! Messages between a client and a server of the command. The first byte of an input says which.

use farreach_command::fuzz::{message_of_client, message_of_server, order};

pub(crate) fn run(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind {
        b'c' => message_of_client(bytes),
        b's' => message_of_server(bytes),
        _ => check(bytes),
    }
}

fn check(bytes: &[u8]) {
    const MEMORY: u64 = 8 << 30;
    let rails = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for rails in [rails(&["tcp"]), rails(&["mlx5_0", "tcp", "efa"]), Vec::new()] {
        let Some(needed) = order(bytes, &rails, MEMORY) else { continue };
        // The limit is exact.
        assert_eq!(order(bytes, &rails, needed), Some(needed));
        assert_eq!(order(bytes, &rails, needed - 1), None);
    }
}
