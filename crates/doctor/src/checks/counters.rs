//! Checks the error counters of ports.
//!
//! A counter that grows on an idle host indicates a bad cable, a congested switch, or a lost peer.

use std::collections::BTreeMap;

use super::cards::{NO_DEVICE, no_device};
use crate::finding::{Answer, Finding, Fix};
use crate::pack::{Missing, Pack, Port};

/// The error counters, and the fix for each. All other counters count traffic.
const ERRORS: &[(&[&str], &str)] = &[
    (
        &[
            "symbol_error",
            "link_error_recovery",
            "link_downed",
            "local_link_integrity_errors",
            "port_rcv_errors",
            "port_rcv_remote_physical_errors",
            "rx_icrc_encapsulated",
        ],
        "clean or replace the cable or its transceiver, and compare the same counters of the switch port",
    ),
    (
        &[
            "port_xmit_discards",
            "VL15_dropped",
            "excessive_buffer_overrun_errors",
            "packet_seq_err",
            "out_of_sequence",
            "implied_nak_seq_err",
            "out_of_seq_request",
            "rcvd_seq_err",
            "duplicate_request",
            "roce_adp_retrans",
            "roce_adp_retrans_to",
            "roce_slow_restart",
            "rx_drops",
            "retrans_pkts",
            "retrans_timeout_events",
            "completer_retry_err",
        ],
        "packets are lost: compare the checks pfc, ecn and mtu of this host and the peer, and the drop counters of the switch",
    ),
    (
        &["rnr_nak_retry_err", "rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err", "out_of_buffer"],
        "a receiver has no receive buffers posted: post more of them, and earlier",
    ),
    (
        &[
            "local_ack_timeout_err",
            "retry_exceeded_err",
            "send_err",
            "unresponsive_remote_events",
            "impaired_remote_conn_events",
        ],
        UNANSWERED,
    ),
    (
        &[
            "port_xmit_constraint_errors",
            "port_rcv_constraint_errors",
            "port_rcv_switch_relay_errors",
            "req_remote_access_errors",
            "resp_remote_access_errors",
            "req_remote_invalid_request",
            "resp_local_length_error",
        ],
        "requests are rejected because of wrong keys, lengths or partitions: see the completion errors of the program that sends them",
    ),
];

const UNANSWERED: &str = "a peer does not answer: check that it runs, and that packets reach it";

fn fix(advice: &str) -> Fix {
    let fix = Fix::new(advice);
    if advice == UNANSWERED { fix.run("farreach ping PEER") } else { fix }
}

/// Checks whether an error counter of a port grows.
pub(super) fn counters(pack: &Pack) -> Answer {
    match pack.probes().counters_growth.get() {
        _ if pack.ports().is_empty() => no_device(pack),
        Err(reason) => Answer::of_each(pack.ports(), NO_DEVICE, |port| {
            Finding::unknown(reason).of(port.words()).read(port.path("counters"))
        }),
        Ok(growth) => Answer::of_each(pack.ports(), NO_DEVICE, |port| {
            counters_of(pack, &port, growth)
                .of(port.words())
                .read(port.path("counters"))
                .read(port.path("hw_counters"))
        }),
    }
}

fn counters_of(pack: &Pack, port: &Port, growth: &BTreeMap<String, u64>) -> Finding {
    let of_errors = |folder: &str| {
        let names = pack.names(&port.path(folder)).into_iter();
        let all: Vec<(String, &str)> =
            names.filter_map(|name| Some((port.path(&format!("{folder}/{name}")), advice(name)?))).collect();
        all
    };
    let mut errors = of_errors("counters");
    errors.extend(of_errors("hw_counters"));
    // A folder that could not be read is recorded as a file.
    let folders = ["counters", "hw_counters"].map(|folder| port.path(folder));
    let unread =
        folders.iter().chain(errors.iter().map(|(path, _)| path)).find_map(|path| match pack.number(path) {
            Err(missing @ Missing::Unreadable(_)) => Some(missing.reason(path)),
            _ => None,
        });
    // The growth of a counter that was not read is unknown.
    errors.retain(|(path, _)| pack.number(path).is_ok());
    if errors.is_empty() {
        return Finding::unknown(unread.unwrap_or_else(|| "the port has no error counters".to_owned()));
    }
    let grown: Vec<_> =
        errors.iter().filter(|(path, _)| growth.get(path).is_some_and(|by| *by > 0)).collect();
    if grown.is_empty() {
        let rest = unread.map(|reason| format!("; others could not be read: {reason}")).unwrap_or_default();
        return Finding::pass(format!("none of {} error counters grew within 1 s{rest}", errors.len()));
    }
    let words = grown.iter().map(|(path, _)| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let total = pack.number(path).map(|total| format!(" to {total}")).unwrap_or_default();
        format!("{name} grew by {}{total}", growth[path])
    });
    let finding = Finding::warn(format!("{} within 1 s", words.collect::<Vec<_>>().join(", ")));
    let mut advice: Vec<&str> = grown.iter().map(|(_, advice)| *advice).collect();
    advice.dedup();
    advice.into_iter().fold(finding, |finding, advice| finding.fix(fix(advice)))
}

/// Returns the fix for an error counter, or `None` if the counter does not count errors.
fn advice(name: &str) -> Option<&'static str> {
    ERRORS.iter().find(|(names, _)| names.contains(&name)).map(|(_, advice)| *advice)
}
