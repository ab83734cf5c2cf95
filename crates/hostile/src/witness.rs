//! A witness: a peer that does nothing but tell the driver its names and keys, as if they had leaked.
//! Attackers get them. Nothing may happen to its memory, its counter and its messages.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::insider::Insider;
use crate::roles::{Done, Told, say, yield_to_others};

/// The interval at which it looks for commands.
const GLANCE: Duration = Duration::from_millis(20);

/// How long it writes to memory that was revoked.
const WRITES_FOR: Duration = Duration::from_millis(300);

/// `hostile witness`
#[derive(Debug, clap::Args)]
pub(crate) struct WitnessArgs {
    /// The address of the victim.
    #[arg(long)]
    address: SocketAddr,

    /// The rail.
    #[arg(long)]
    rail: String,

    /// Its name.
    #[arg(long)]
    name: String,
}

/// Confirms no revocation: the victim must not take another peer's word for it.
pub(crate) fn run(args: &WitnessArgs) -> Result<()> {
    yield_to_others();
    let mut insider = Insider::join(args.address, &args.rail, &args.name)?;
    let secrets = insider.secrets().context("the victim has granted nothing")?;
    say(&Told { secrets: secrets.clone() })?;
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        // The victim may end the connection, for example after a revocation.
        let is_lost = insider.pump(GLANCE).is_err();
        match commands.try_recv().as_deref() {
            Ok("write") => {
                let end = Instant::now() + WRITES_FOR;
                while Instant::now() < end {
                    insider.poster.write(secrets.address, secrets.key, None);
                }
                say(&Done {})?;
            }
            Ok(other) => bail!("a witness does not know the command {other:?}"),
            Err(TryRecvError::Empty) if is_lost => std::thread::sleep(GLANCE),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}
