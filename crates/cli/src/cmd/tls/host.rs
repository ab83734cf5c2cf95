//! The names of a host, as they are typed.

use std::net::IpAddr;
use std::str::FromStr;

use farreach::rustls::pki_types::ServerName;

/// The names and addresses of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host(Vec<String>);

impl Host {
    /// Returns the name of its folder.
    pub(super) fn folder(&self) -> &str {
        &self.0[0]
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }

    /// Returns the host in the form that scp takes.
    pub(super) fn to_copy(&self) -> String {
        let name = self.folder();
        if name.contains(':') { format!("'[{name}]'") } else { name.to_owned() }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',') {
            let is_name = name.parse::<IpAddr>().is_ok() || ServerName::try_from(name).is_ok();
            if !is_name {
                return Err(format!("`{name}` is neither a DNS name nor an IP address (without a port)"));
            }
            names.push(name.to_owned());
        }
        // The first one is the name of a folder.
        let is_plain = |char: char| char.is_ascii_alphanumeric() || "._:-".contains(char);
        if names[0].starts_with(['.', '-']) || !names[0].chars().all(is_plain) {
            return Err(format!("`{}` cannot be the name of a folder", names[0]));
        }
        if names[0] == super::CA {
            return Err(format!("`{}` is the folder of the CA: put another name first", super::CA));
        }
        Ok(Self(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_taken_and_paths_are_not() {
        let host: Host = "storage-7,storage-7.example,10.0.0.7,2001:db8::7".parse().expect("a host");
        assert_eq!((host.folder(), host.names().len()), ("storage-7", 4));
        assert_eq!("fe80::1".parse::<Host>().expect("an address").to_copy(), "'[fe80::1]'");
        for text in [
            "",
            ",",
            "a,",
            ",a",
            "..",
            ".",
            "../a",
            "a/b",
            "/etc",
            "-a",
            ".a",
            "a b",
            "a:18520",
            "10.0.0.7:1",
            "*",
            "*.example",
            "ca",
            "ca,a",
            "a\n",
            "a\0",
            "$(reboot)",
            "[::1]",
            "a..b",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }
}
