//! Matrix times vector, the bulk of every decode step: what its operations share.

pub mod geometry;
pub mod head;
pub mod soa;
pub mod variants;

use crate::codes::{Format, Order, Packing};

/// An operation that reads the rows of a matrix.
pub trait MatVec {
    /// Rows.
    fn rows(&self) -> usize;
    /// Elements of a row.
    fn k(&self) -> usize;
    /// Storage of the rows.
    fn weight(&self) -> Format;

    /// Chunks of 16 bytes in a dense row.
    fn chunks16(&self) -> usize {
        self.weight().row_stride(self.k(), Packing::Blocks) / 16
    }

    /// Chunks of 8 bytes in a dense 16-bit row.
    fn chunks8(&self) -> usize {
        self.k().div_ceil(4)
    }
}

/// `ORDER` of variants over SoA-repacked blocks whose operation has no such parameter: blocks run
/// along the rows.
pub const ALONG_ROWS: (&str, f64) = ("ORDER", Order::RowWise.code() as f64);
