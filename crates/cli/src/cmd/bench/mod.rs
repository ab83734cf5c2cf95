//! `farreach bench`: operations × sizes × depths × rails, as table, JSON, CSV and chart, against a floor or an earlier run.

pub(crate) mod against;
pub(crate) mod chart;
pub(crate) mod csv;
pub(crate) mod figures;
pub(crate) mod floor;
pub(crate) mod report;
#[cfg(test)]
mod sample;
mod series;
pub(crate) mod table;
pub(crate) mod verdict;
