//! Which rails an engine opens.

use crate::Settings;
use crate::error::Error;
use crate::provider::Provider;

pub(crate) fn rails(settings: &Settings) -> Result<Vec<Box<dyn Provider>>, Error> {
    Err(Error::NoRail { tried: Vec::new(), needs_rdma: settings.require_rdma })
}
