//! Tries what the rail within a host needs from the kernel.

use std::io;

use farreach_shm::Survey;

use super::errno::errno_words;
use crate::probes::{Refused, Shm};

pub(super) fn look() -> Shm {
    let survey = Survey::take();
    let refused = survey.obstacles.iter().map(|it| Refused::new(it.call, words(&it.error)));
    Shm { refused: refused.collect(), read_only_seal: survey.read_only_seal.as_ref().map(words) }
}

fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), errno_words)
}
