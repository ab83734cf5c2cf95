//! Flow steering and its counters. IPsec offload (`ibv_create_flow_action_esp` and related
//! functions) is omitted: it serves raw Ethernet queue pairs of one vendor, and nothing here uses
//! it.

use std::ffi::c_int;

use super::through_context;
use crate::bindings::*;

through_context! {
    /// `ibv_create_flow(3)`: steers matching packets to a raw queue pair.
    fn ibv_create_flow(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow: (*qp).context => ibv_create_flow;

    /// `ibv_destroy_flow(3)`
    fn ibv_destroy_flow(flow: *mut ibv_flow) -> c_int: (*flow).context => ibv_destroy_flow;

    /// `ibv_create_counters(3)`
    fn ibv_create_counters(context: *mut ibv_context, init_attr: *mut ibv_counters_init_attr) -> *mut ibv_counters:
        context => create_counters;

    /// `ibv_destroy_counters(3)`
    fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int: (*counters).context => destroy_counters;

    /// `ibv_attach_counters_point_flow(3)`
    fn ibv_attach_counters_point_flow(
        counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr,
        flow: *mut ibv_flow,
    ) -> c_int: (*counters).context => attach_counters_point_flow;

    /// `ibv_read_counters(3)`
    fn ibv_read_counters(counters: *mut ibv_counters, values: *mut u64, count: u32, flags: u32) -> c_int:
        (*counters).context => read_counters;
}
