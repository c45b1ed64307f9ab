//! Matrix times vector, the bulk of every decode step: common parts of its operations.
//!
//! Most variants are made of modules alone: a prologue (how x is loaded, and what lanes add up),
//! rows (how the matrix is stored and decoded), a schedule (which lanes read what, and the entry
//! point) and an epilogue (where products go), in the folders of these names. The comment above
//! such a variant's declaration is its text: a header as every WGSL file has it, and what it
//! imports. The build script adds the buffers and parameters that the modules require, as
//! `naive.wgsl` declares them.

pub mod geometry;
pub mod head;
pub mod schedule;
pub mod soa;
pub mod units;

use crate::declare::*;

/// An operation that reads the rows of a matrix.
pub trait MatVec {
    /// Rows.
    fn rows(&self) -> usize;
    /// Elements of a row.
    fn k(&self) -> usize;
    /// Storage of the rows.
    fn weight(&self) -> Format;

    /// True if rows of an even and the next number make one output.
    const PAIRED: bool = false;

    /// True if the order of blocks is a parameter of the operation.
    const HAS_ORDER: bool = false;

    /// Order in which blocks run through the matrix.
    fn order(&self) -> Order {
        Order::RowWise
    }

    /// Vectors that meet the matrix.
    fn n_vectors(&self) -> usize {
        1
    }

    /// Chunks of 16 bytes in a dense row.
    fn chunks16(&self) -> usize {
        self.weight().row_stride(self.k(), Packing::Blocks) / 16
    }

    /// Chunks of 8 bytes in a dense 16-bit row.
    fn chunks8(&self) -> usize {
        self.k().div_ceil(4)
    }
}

/// Implements [`MatVec`] for a struct of parameters by its fields of the same names; or with items
/// in braces, `rows` among them.
macro_rules! mat_vec {
    ($params:ty) => {
        $crate::matvec::mat_vec!($params {
            fn rows(&self) -> usize {
                self.rows
            }
        });
    };
    ($params:ty { $($items:tt)* }) => {
        impl $crate::matvec::MatVec for $params {
            fn k(&self) -> usize {
                self.k
            }
            fn weight(&self) -> $crate::codes::Format {
                self.weight
            }
            $($items)*
        }
    };
}

pub(crate) use mat_vec;

/// The matrix. Pages name its parameters and not the methods that give them.
pub const fn weights<P: MatVec>() -> Binding<P> {
    let matrix: OfState<P, Elem> =
        &|p, _| Elem::Weights(Matrix { order: p.order(), ..Matrix::rows(p.weight(), p.k()) });
    let text = if P::PAIRED { "2 * p.n * p.k" } else { "p.rows * p.k" };
    Binding::input("weights", matrix, Len { count: &|p, _| p.rows() * p.k(), text })
}

/// `ORDER` of variants over SoA-repacked blocks whose operation has no such parameter: blocks run
/// along the rows.
pub const ALONG_ROWS: (&str, f64) = ("ORDER", Order::RowWise.code() as f64);

/// NMSE of f32 products over `rows` results. A few may all but cancel, and NMSE then divides by
/// next to nothing; the bound of an element, which is relative to the sum of sizes, still holds
/// each of them.
pub fn nmse(rows: usize) -> f64 {
    match rows {
        0..8 => 9e-6,
        8..64 => 1e-9,
        _ => 1e-10,
    }
}

/// Tolerance of a product with the normed stream of a branch and its `outputs`: a
/// residual_rms_norm, and then a product as in gemv or gemv_q.
pub fn joined_tolerance<P: MatVec>(p: &P, outputs: usize) -> Tolerance {
    let walk = (p.k() as f64).sqrt();
    Tolerance::new(
        if p.weight().is_dense() { 24.0 + 3.0 * walk } else { 72.0 + 5.0 * walk },
        // Few elements may cancel, in x + branch too.
        nmse(outputs.min(p.k())),
        "two norms and a rounded sum as in residual_rms_norm, 8 + sqrt K, and a product as \
                 in gemv or gemv_q; how far the stream's errors reach a result is in the \
                 reference's magnitude",
    )
}
