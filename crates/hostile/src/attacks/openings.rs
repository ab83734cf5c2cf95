//! Openings of a publication by a peer that the victim revokes meanwhile, at any moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach_proto::ids::PublicationId;
use farreach_proto::wire::Frame;

use super::AttackArgs;
use crate::insider::{Insider, OPENER, Posted};
use crate::roles::Attacked;

/// How long the victim may take to revoke.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a publication until the victim's program says that it has revoked it for this peer. Then it tries
/// to write with the key that it got, and to open it again.
pub(super) fn openings(args: &AttackArgs) -> Result<Attacked> {
    let token = args.publication.as_deref().context("this attack needs the token of a publication")?;
    let publication = PublicationId::from_raw(u64::from_str_radix(token.trim_start_matches("p-"), 16)?);
    let (mut attacked, end) = (Attacked::default(), args.end());
    while attacked.attempts == 0 || Instant::now() < end {
        if let Err(error) = once(args, publication, &mut attacked) {
            attacked.count("connections ended", 1);
            if attacked.counts["connections ended"] > 100 && attacked.attempts == 0 {
                return Err(error);
            }
        }
    }
    attacked.did = format!("openings: {}", attacked.counted());
    Ok(attacked)
}

fn once(args: &AttackArgs, publication: PublicationId, attacked: &mut Attacked) -> Result<()> {
    let mut insider = Insider::join(args.address, &args.rail, OPENER)?;
    // The first message tells the names of a grant and a counter, the second one that it is revoked.
    let (deadline, mut is_asked, mut key) = (Instant::now() + PATIENCE, false, None);
    while insider.poster.heard < 2 {
        if Instant::now() >= deadline {
            bail!("the victim has not revoked the publication within {PATIENCE:?}");
        }
        if !is_asked {
            insider.speaker.send(&Frame::Open { publication })?;
            is_asked = true;
        }
        insider.pump(Duration::from_micros(200))?;
        if let Some(opened) = insider.take_opened() {
            is_asked = false;
            attacked.count(if opened.is_some() { "opened" } else { "refused" }, 1);
            let grant = opened.and_then(|_| insider.secrets()).filter(|it| Some(it.grant) == opened);
            key = grant.map(|it| (it.address, it.key)).or(key);
        }
        // As a peer that stops at once, or says so.
        if let Some(grant) = insider.take_revoked() {
            insider.speaker.send(&Frame::Revoked { grant })?;
        }
    }
    attacked.attempts += 1;
    attacked.count("revoked", 1);
    if is_asked {
        insider.await_opened()?;
    }
    insider.speaker.send(&Frame::Open { publication })?;
    if insider.await_opened()?.is_some() {
        attacked
            .breach("a publication was opened after it was revoked", format!("{:#x}", publication.to_raw()));
    }
    if let Some((address, key)) = key {
        attacked.count("written afterwards", 1);
        if insider.poster.write(address, key, None) == Posted::Done {
            attacked.breach("a write completed after the revocation", format!("{key:#x}"));
        }
    }
    Ok(())
}
