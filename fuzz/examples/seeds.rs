//! Writes the seeds into the corpora. Needed after a change of a format:
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for (target, name, input) in farreach_fuzz::seeds::seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{name}")), input)?;
    }
    Ok(())
}
