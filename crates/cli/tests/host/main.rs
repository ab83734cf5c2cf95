//! The command where no RDMA library or device is needed.

#[path = "../support"]
#[allow(dead_code, reason = "each tier of tests uses its part")]
mod support {
    pub(crate) mod bash;
    pub(crate) mod client;
    pub(crate) mod run;
    pub(crate) mod schema;
}

mod completions;
mod devices;
mod doctor_host;
mod doctor_packs;
mod failures;
mod help_texts;
