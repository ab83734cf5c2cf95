//! The first file system of the guest: busybox, the modules and `init`, in the cpio format `newc`
//! that Linux reads.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::kernel::Kernel;

const INIT: &str = include_str!("guest/init");

/// Writes the archive for `kernel`, with the busybox of the guest's root.
pub(crate) fn write(kernel: &Kernel, root: &Path, target: &Path) -> Result<()> {
    let busybox = root.join("usr/bin/busybox");
    let busybox = std::fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    let file = std::fs::File::create(target).with_context(|| format!("cannot write {}", target.display()))?;
    let mut archive = Archive { out: io::BufWriter::new(file), entries: 0 };
    archive.directory("bin")?;
    archive.directory("modules")?;
    archive.file("bin/busybox", &busybox)?;
    archive.file("init", INIT.as_bytes())?;
    let mut order = String::new();
    for module in &kernel.modules {
        let name = module.file_name().context("a module has no name")?.to_string_lossy();
        archive.file(&format!("modules/{name}"), &std::fs::read(module)?)?;
        order.push_str(&format!("{name}\n"));
    }
    archive.file("modules/order", order.as_bytes())?;
    archive.finish()
}

struct Archive<W: Write> {
    out: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    /// Adds a file. All files are executable: most are programs, and it does not matter for
    /// modules.
    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.entry(name, 0o100_755, bytes)
    }

    fn finish(mut self) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush().context("cannot write the initramfs")
    }

    /// Writes one entry: a header of thirteen hexadecimal fields, the name and the bytes, each
    /// padded to four.
    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.entries += 1;
        let length = u32::try_from(bytes.len()).context("a file for the initramfs is too long")?;
        let name_length = u32::try_from(name.len() + 1).context("a name for the initramfs is too long")?;
        let fields = [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        header.push_str(name);
        header.push('\0');
        self.padded(header.as_bytes())?;
        self.padded(bytes)
    }

    fn padded(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_padded_entries_and_a_trailer() {
        let mut bytes = Vec::new();
        let mut archive = Archive { out: &mut bytes, entries: 0 };
        archive.file("abc", b"hello").unwrap();
        archive.finish().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        // 110 bytes of header, 4 of name, 2 of padding; 5 of content, 3 of padding.
        assert!(text.starts_with("07070100000001000081ED"), "{text}");
        assert_eq!(&text[110..114], "abc\0");
        assert_eq!(&text[116..121], "hello");
        assert_eq!(&text[124..130], "070701");
        assert!(text.contains("TRAILER!!!\0"));
        assert_eq!(text.len() % 4, 0);
    }
}
