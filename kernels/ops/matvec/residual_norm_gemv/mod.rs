//! A normed branch into the residual stream, and the stream's norm, as the prologue of a matrix
//! times vector: a dispatch less where a norm of Gemma's has one reader.

use crate::codes::Format;
use crate::descriptor::*;
use crate::len;
use crate::matvec::schedule::Schedule;
use crate::matvec::{joined_tolerance, mat_vec, weights};
use crate::shared::*;

crate::params! {
    /// Parameters of `residual_norm_gemv`.
    pub struct ResidualNormGemv {
        rows: usize = ROWS,
        k: usize = columns(1500),
        weight: Format = weight(&Format::ALL),
        y_offset: usize = Y_OFFSET,
        eps: f32 = EPS,
    }
}

mat_vec!(ResidualNormGemv);

/// A matrix that fills all of y.
fn matrix(rows: usize, k: usize, weight: Format) -> ResidualNormGemv {
    ResidualNormGemv { rows, k, weight, y_offset: 0, eps: 1e-6 }
}

/// The declaration.
pub static OPERATION: Declaration<ResidualNormGemv> = Declaration {
    name: "residual_norm_gemv",
    summary: "x + rms_norm(delta) into next_x, and a matrix (ROWS, K) times its RMSNorm",
    fuses: Some(Fusion {
        of: &["residual_rms_norm", "gemv"],
        against: |_| None,
        against_phase: |_| None,
        pays_with: |_, variant| variant != "naive",
    }),
    state: &[],
    bindings: &[
        weights(),
        Binding::input("x", f32s, len!(p => p.k)),
        Binding::input("delta", f32s, len!(p => p.k)),
        Binding::input("post_weight", f32s, len!(p => p.k)),
        Binding::input("norm_weight", f32s, len!(p => p.k)),
        Binding::in_out("y", f32s, len!(p => p.y_offset + p.rows)),
        Binding::output("next_x", f32s, len!(p => p.k)),
    ],
    variants: &[
        Schedule::NAIVE,
        Variant { name: "workgroup", ..Schedule::FAN },
        Variant { name: "sweep", ..Schedule::SWEEP },
        Variant { name: "workgroup_q", ..Schedule::TREE },
        Variant { name: "planes_dp4a24", ..Schedule::INT8_ROWS },
    ],
    prefer: |p| match p.weight.is_dense() {
        true => &["sweep", "workgroup", "naive"],
        false => &["planes_dp4a24", "workgroup_q", "naive"],
    },
    cost: |p, _| {
        let (rows, k) = (p.rows as f64, p.k as f64);
        Cost {
            bytes: rows * p.weight.row_bytes(p.k) as f64 + 4.0 * rows + 20.0 * k,
            flops: 2.0 * rows * k + 9.0 * k,
        }
    },
    tolerance: |p, _| joined_tolerance(p, p.rows),
    cases: || {
        let mut cases = Vec::new();
        for &f in Format::DENSE {
            // A later first element, on whole and on ragged rows.
            cases.push(ResidualNormGemv { y_offset: 64, ..matrix(40, 1152, f) });
            cases.push(ResidualNormGemv { y_offset: 1, eps: 1e-5, ..matrix(9, 1003, f) });
            cases.push(matrix(3, 7, f));
        }
        // Gemma's widths, widths no multiple of 8, 4 or 2, and more fours than registers keep.
        for (rows, k) in [(1, 1), (33, 2560), (65, 1004), (40, 1001), (9, 5126)] {
            cases.push(matrix(rows, k, Format::Bf16));
        }
        for (i, &f) in Format::QUANTISED.iter().enumerate() {
            cases.push(ResidualNormGemv { y_offset: 64, ..matrix(37, 1152, f) });
            cases.push(ResidualNormGemv { eps: 1e-5, ..matrix(5, 300 + i, f) });
        }
        // As many rows as decide for other lanes, and more workgroups than one dimension holds.
        cases.push(matrix(1536, 1152, Format::Bf16));
        cases.push(matrix(262_147, 5, Format::F16));
        cases.into_iter().map(Case::from).collect()
    },
    bench: || [Format::Bf16, Format::Q4_0].map(|weight| matrix(1536, 1152, weight).into()).to_vec(),
};
