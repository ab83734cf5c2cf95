//! The checks where no RDMA library or device is needed: on recorded hosts, and on this one.

mod faults;
mod hostile;
mod prose;
mod recorded;
mod this_host;
