//! RMSNorm as the prologue of a matrix times vector: a dispatch less where a norm has one reader.

use crate::codes::{Format, NormOffset};
use crate::descriptor::*;
use crate::len;
use crate::matvec::schedule::Schedule;
use crate::matvec::{mat_vec, nmse, weights};
use crate::shared::*;

crate::params! {
    /// Parameters of `norm_gemv`.
    pub struct NormGemv {
        rows: usize = ROWS,
        k: usize = columns(1500),
        weight: Format = weight(&Format::ALL),
        y_offset: usize = Y_OFFSET,
        eps: f32 = EPS,
        weight_offset: NormOffset = WEIGHT_OFFSET,
    }
}

mat_vec!(NormGemv);

/// A matrix that fills all of y, after a standard norm.
fn matrix(rows: usize, k: usize, weight: Format) -> NormGemv {
    let weight_offset = NormOffset::Standard;
    NormGemv { rows, k, weight, y_offset: 0, eps: 1e-6, weight_offset }
}

/// The declaration.
pub static OPERATION: Declaration<NormGemv> = Declaration {
    name: "norm_gemv",
    summary: "matrix (ROWS, K) times the RMSNorm of a vector (K)",
    fuses: Some(Fusion {
        of: &["rms_norm", "gemv_q"],
        against: |_| None,
        against_phase: |_| None,
        // A head was measured with one. Others read their input anew for every row, and with it the
        // norm's weights.
        pays_with: |p, variant| match p.rows {
            16_384.. => variant == "planes_dp4a24",
            _ => variant != "naive",
        },
    }),
    state: &[],
    bindings: &[
        weights(),
        Binding::input("x", f32s, len!(p => p.k)),
        Binding::input("norm_weight", f32s, len!(p => p.k)),
        Binding::in_out("y", f32s, len!(p => p.y_offset + p.rows)),
    ],
    variants: &[
        Schedule::NAIVE,
        Variant { name: "workgroup", ..Schedule::FAN },
        Variant { name: "subgroup", ..Schedule::SUBGROUP_SHARE },
        Variant { name: "vec2", ..Schedule::SPLIT_ROW_8 },
        Variant { name: "split_row", ..Schedule::SPLIT_ROW },
        Variant { name: "split_k", ..Schedule::SPLIT_K },
        Variant { name: "sweep", ..Schedule::SWEEP },
        Variant { name: "workgroup_q", ..Schedule::TREE },
        Variant { name: "planes", ..Schedule::SUBGROUP_TILES },
        Variant { name: "planes_dp4a24", ..Schedule::INT8_ROWS },
    ],
    prefer: |p| match (p.rows, p.weight) {
        (_, quantised) if !quantised.is_dense() => {
            &["planes_dp4a24", "planes", "workgroup_q", "naive"]
        }
        // x and the norm's weights weigh more than a row: few loads of them count, until lanes
        // run short.
        (4096.., _) => &["split_k", "subgroup", "workgroup", "naive"],
        (_, Format::F32) => &["split_row", "subgroup", "workgroup", "naive"],
        _ => &["vec2", "split_row", "workgroup", "naive"],
    },
    cost: |p, _| {
        let (rows, k) = (p.rows as f64, p.k as f64);
        Cost {
            bytes: rows * p.weight.row_bytes(p.k) as f64 + 4.0 * rows + 8.0 * k,
            flops: 2.0 * rows * k + 4.0 * k,
        }
    },
    tolerance: |p, _| Tolerance {
        // Quants may be summed with an offset that is taken out per 32 weights, as in gemv_q.
        k: if p.weight.is_dense() {
            16.0 + 3.0 * (p.k as f64).sqrt()
        } else {
            64.0 + 4.0 * (p.k as f64).sqrt()
        },
        rounding: 0.0,
        nmse: nmse(p.rows),
        reason: "K rounded products and additions behave as a random walk of step eps * sum|w n|; \
                 so does the sum of K squares, of which a root of 2 ULP scales the row",
    },
    cases: || {
        use NormOffset::{Gemma, Standard};
        // Both conventions of a norm's weight, alternating from format to format.
        let conventions =
            |i: usize| if i.is_multiple_of(2) { (Standard, Gemma) } else { (Gemma, Standard) };
        let mut cases = Vec::new();
        for (i, &f) in Format::DENSE.iter().enumerate() {
            let (weight_offset, other) = conventions(i);
            // A later first element, on whole and on ragged rows.
            cases.push(NormGemv { weight_offset, y_offset: 64, ..matrix(40, 1152, f) });
            let ragged = NormGemv { eps: 1e-5, weight_offset: other, ..matrix(9, 1003, f) };
            cases.push(NormGemv { y_offset: 1, ..ragged });
            cases.push(NormGemv { weight_offset, ..matrix(3, 7, f) });
        }
        // Gemma, Llama and Qwen widths, and widths no multiple of 8, 4 or 2.
        for (rows, k) in [(1, 1), (33, 6912), (17, 2048), (65, 1004), (40, 1001)] {
            cases.push(matrix(rows, k, Format::Bf16));
        }
        for (i, &f) in Format::QUANTISED.iter().enumerate() {
            let (weight_offset, other) = conventions(i);
            let y_offset = if weight_offset == Gemma { 64 } else { 0 };
            cases.push(NormGemv { weight_offset, y_offset, ..matrix(37, 1152, f) });
            cases.push(NormGemv { eps: 1e-5, weight_offset: other, ..matrix(5, 300 + i, f) });
        }
        // As many rows as decide for other lanes, and more workgroups than one dimension holds.
        cases.push(NormGemv { weight_offset: Gemma, ..matrix(1536, 1152, Format::Bf16) });
        cases.push(matrix(262_147, 5, Format::F16));
        cases.into_iter().map(Case::from).collect()
    },
    bench: || {
        [(1536, 1152), (13824, 1152), (3072, 2048), (4096, 2048), (16384, 2048), (12288, 2048)]
            .into_iter()
            .map(|(rows, k)| matrix(rows, k, Format::Bf16))
            .chain([
                matrix(1536, 1152, Format::Q4_0),
                NormGemv { eps: 1e-5, ..matrix(3072, 2048, Format::Q4K) },
            ])
            .map(Case::from)
            .collect()
    },
};
