//! What `fi_info` knows of libfabric's offers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Provider, its version, fabric, domain, endpoint type and protocol of an offer.
pub(crate) type Offer = [String; 6];

/// What `fi_info` lists, in our words.
pub(crate) fn listed(text: &str) -> BTreeSet<Offer> {
    let mut offers: Vec<BTreeMap<&str, &str>> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once(": ") else { panic!("fi_info: {line}") };
        if key == "provider" {
            offers.push(BTreeMap::new());
        }
        offers.last_mut().expect("an offer begins with its provider").insert(key, value);
    }
    let offer = |it: &BTreeMap<&str, &str>| {
        let word = |key: &str, prefix: &str| it[key].trim_start_matches(prefix).to_lowercase();
        [
            it["provider"].to_owned(),
            it["version"].to_owned(),
            it["fabric"].to_owned(),
            it["domain"].to_owned(),
            word("type", "FI_EP_"),
            word("protocol", "FI_PROTO_"),
        ]
    };
    offers.iter().map(offer).collect()
}

/// What our report lists.
pub(crate) fn reported(report: &Value) -> BTreeSet<Offer> {
    let offers = report["fabric"]["offers"].as_array().expect("offers are a list");
    let keys = ["provider", "provider_version", "fabric", "domain", "endpoint_type", "protocol"];
    let word = |offer: &Value, key| offer[key].as_str().expect("a word").to_owned();
    offers.iter().map(|offer| keys.map(|key| word(offer, key))).collect()
}

/// The providers that `fi_info -l` lists. Some of them only serve others, and some have nothing to offer here.
pub(crate) fn providers(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.starts_with(' ')).map(|line| line.trim_end_matches(':')).collect()
}

/// Compares our report with both listings.
pub(crate) fn assert_agrees(report: &Value, listing: &str, provider_listing: &str) {
    let (ours, theirs) = (reported(report), listed(listing));
    let only = |these: &BTreeSet<Offer>, those| these.difference(those).cloned().collect::<Vec<_>>();
    assert!(
        ours == theirs && !ours.is_empty(),
        "only we list {:#?}\nonly fi_info lists {:#?}",
        only(&ours, &theirs),
        only(&theirs, &ours)
    );
    let known = providers(provider_listing);
    for [name, ..] in &ours {
        assert!(name.split(';').all(|layer| known.contains(layer)), "{name} is not in {known:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_read() {
        let text = "provider: tcp;ofi_rxm\n    fabric: 192.0.2.0/24\n    domain: v0\n    version: 201.0\n    \
                    type: FI_EP_RDM\n    protocol: FI_PROTO_RXM\n";
        let offer = ["tcp;ofi_rxm", "201.0", "192.0.2.0/24", "v0", "rdm", "rxm"].map(str::to_owned);
        assert_eq!(listed(text), [offer].into());
        assert_eq!(providers("tcp:\n    version: 201.0\nshm:\n    version: 201.0\n"), ["tcp", "shm"].into());
    }
}
