//! Plain data and computations on it alone: records, statistics, the regression gate. Measuring
//! code fills these, reports read them, and nothing here knows a device.

pub mod adapter;
pub mod error;
pub mod files;
pub mod gate;
pub mod merge;
pub mod paired;
pub mod processes;
pub mod ratio;
pub mod record;
pub mod rng;
pub mod row;
mod size;
pub mod stats;
pub mod steady;

pub use adapter::AdapterSummary;
pub use error::{Error, Result};
pub use ratio::Ratio;
pub use size::{bytes, count};

/// Adds new elements, each once and in its order.
fn add_new<T: PartialEq>(to: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !to.contains(&one) {
            to.push(one);
        }
    }
}
