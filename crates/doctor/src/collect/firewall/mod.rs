//! Reads the packet filter rules that concern the two ports of Farreach.
//!
//! The kernel is first asked whether there are any rules. If there are none, no program is needed
//! to list them.

mod iptables;
mod nft;
mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;

use self::walk::{Table, chains};
use super::netlink::{NETFILTER, NetlinkError, Want, ask, attribute, text};
use super::runner::{ProgramError, Runner};
use crate::probes::{Chain, Reading};

// From linux/netfilter/nfnetlink.h and nf_tables.h.
const NFT_GETTABLE: u16 = 10 << 8 | 1;
const NFTA_TABLE_NAME: u16 = 1;

/// The size of `struct nfgenmsg`: the family, a version, and a resource ID that is unused here.
const HEADER: usize = 4;

/// Returns the chains that packets of this host pass.
pub(super) fn read(runner: &impl Runner) -> Reading<Vec<Chain>> {
    tables(runner).map(|tables| chains(&tables)).into()
}

fn tables(runner: &impl Runner) -> Result<Vec<Table>, String> {
    let modern = modern_tables()?;
    let mut tables = if modern.is_empty() { Vec::new() } else { of_nft(runner, &modern)? };
    if has_legacy_tables()? {
        let legacy = saved(runner, ["iptables-legacy-save", "ip6tables-legacy-save"])
            .or_else(|| saved(runner, ["iptables-save", "ip6tables-save"]));
        tables.extend(legacy.ok_or(
            "the kernel has rules of iptables-legacy, but iptables-legacy-save, which lists them, is not installed (package iptables)",
        )??);
    }
    Ok(tables)
}

/// Reads rules of nf_tables, made by any program.
fn of_nft(runner: &impl Runner, names: &BTreeSet<String>) -> Result<Vec<Table>, String> {
    let Some(listed) = output(runner, "nft", &["-j", "list", "ruleset"]) else {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return of_iptables(runner, &names).unwrap_or_else(|| {
            Err(format!(
                "the kernel has tables of rules ({}), but nft, which lists them, is not installed (package nftables)",
                names.join(", ")
            ))
        });
    };
    let tables = nft::parse(&listed?)?;
    let (opaque, mut tables): (Vec<Table>, Vec<Table>) =
        tables.into_iter().partition(|table| table.is_opaque);
    if !opaque.is_empty() {
        let names: Vec<&str> = opaque.iter().map(|table| table.name.as_str()).collect();
        let readable = of_iptables(runner, &names).ok_or(
            "iptables has created rules that nft cannot show, but iptables-save is not installed (package iptables)",
        )??;
        tables.extend(readable.into_iter().filter(|table| names.contains(&table.name.as_str())));
    }
    Ok(tables)
}

/// Reads rules of nf_tables that iptables made.
///
/// Returns `None` if iptables is not installed or does not list all of these tables: it lists only
/// its own.
fn of_iptables(runner: &impl Runner, names: &[&str]) -> Option<Result<Vec<Table>, String>> {
    let found = saved(runner, ["iptables-nft-save", "ip6tables-nft-save"])
        .or_else(|| saved(runner, ["iptables-save", "ip6tables-save"]))?;
    let has_all =
        |tables: &Vec<Table>| names.iter().all(|name| tables.iter().any(|table| table.name == *name));
    Some(found).filter(|found| found.as_ref().map_or(true, has_all))
}

/// Returns the nf_tables tables of this network namespace: `inet filter`.
fn modern_tables() -> Result<BTreeSet<String>, String> {
    match ask(NETFILTER, NFT_GETTABLE, Want::List, &[0; HEADER]) {
        Ok(answers) => Ok(answers.iter().filter_map(|answer| table_name(answer)).collect()),
        // The kernel has no nf_tables, or has not loaded it.
        Err(NetlinkError::Refused(Errno::PROTONOSUPPORT | Errno::INVAL | Errno::OPNOTSUPP)) => {
            Ok(BTreeSet::new())
        }
        Err(NetlinkError::Refused(Errno::PERM | Errno::ACCESS)) => {
            Err("only root may list the rules of the packet filters: run farreach doctor as root".to_owned())
        }
        Err(error) => Err(format!("cannot query nf_tables over netlink: {error}")),
    }
}

fn table_name(answer: &[u8]) -> Option<String> {
    let family = match answer.first()? {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    };
    Some(format!("{family} {}", text(attribute(answer.get(HEADER..)?, NFTA_TABLE_NAME)?)))
}

/// Returns whether the legacy ip_tables code of the kernel has tables. It keeps every table that
/// was ever requested.
fn has_legacy_tables() -> Result<bool, String> {
    for path in ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"] {
        match fs::read_to_string(path) {
            Ok(names) if !names.trim().is_empty() => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("cannot read {path}: {error}; run farreach doctor as root")),
        }
    }
    Ok(false)
}

/// Returns the tables that these two programs print, for IPv4 and IPv6; `None` if one is not
/// installed.
fn saved(runner: &impl Runner, programs: [&str; 2]) -> Option<Result<Vec<Table>, String>> {
    let mut tables = Vec::new();
    for (program, family) in programs.into_iter().zip(["ip", "ip6"]) {
        match output(runner, program, &[])? {
            Ok(text) => tables.extend(iptables::parse(&text, family)),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(tables))
}

/// Parses the output of `nft -j list ruleset`.
#[cfg(feature = "fuzz")]
pub fn parse_nft(text: &str) -> Result<Vec<Chain>, String> {
    Ok(chains(&nft::parse(text)?))
}

/// Parses the output of `iptables-save`.
#[cfg(feature = "fuzz")]
pub fn parse_iptables(text: &str) -> Vec<Chain> {
    chains(&iptables::parse(text, "ip"))
}

/// Returns the output of a program, or `None` if it is not installed.
fn output(runner: &impl Runner, program: &str, args: &[&str]) -> Option<Result<String, String>> {
    match runner.output(program, args) {
        Ok(printed) => Some(Ok(printed)),
        Err(ProgramError::NotInstalled) => None,
        Err(ProgramError::Failed(why)) => Some(Err(why)),
    }
}
