//! The reference's products over stored rows, spread over threads.

use lathe_kernels::{Activation, Beta};
use lathe_reference as reference;
use lathe_reference::{Expected, quant};
use rayon::prelude::*;

use crate::plan::weights::{WeightRows, oracle_format};

pub(super) fn format_of(rows: &WeightRows) -> quant::Format {
    oracle_format(rows.format)
}

pub(in crate::execute) fn row_of(rows: &WeightRows, mut index: usize) -> &[u8] {
    for part in &rows.parts {
        let here = rows.rows_of(part);
        if index < here {
            return &part.get()[index * rows.row_bytes()..][..rows.row_bytes()];
        }
        index -= here;
    }
    panic!("row {index} past the end of {rows:?}")
}

/// The reference's GEMV.
pub(super) fn gemv(rows: &WeightRows, x: &[f32]) -> Expected {
    over_rows(rows, |format, bytes, v, m| {
        reference::gemv::gemv_rows(format, bytes, rows.k, x, v, m);
    })
}

/// Values and magnitudes of all rows, computed by `product` for blocks of rows spread over threads.
pub(super) fn over_rows(
    rows: &WeightRows,
    product: impl Fn(quant::Format, &[u8], &mut [f64], &mut [f64]) + Sync,
) -> Expected {
    const ROWS_A_TASK: usize = 64;
    let format = format_of(rows);
    let count = rows.rows();
    let (mut value, mut magnitude) = (vec![0.0; count], vec![0.0; count]);
    let (mut values, mut magnitudes) = (&mut value[..], &mut magnitude[..]);
    for part in &rows.parts {
        let n = rows.rows_of(part);
        let (v, m);
        (v, values) = values.split_at_mut(n);
        (m, magnitudes) = magnitudes.split_at_mut(n);
        v.par_chunks_mut(ROWS_A_TASK)
            .zip(m.par_chunks_mut(ROWS_A_TASK))
            .zip(part.get().par_chunks((ROWS_A_TASK * rows.row_bytes()).max(1)))
            .for_each(|((v, m), bytes)| product(format, bytes, v, m));
    }
    Expected::new(value, magnitude)
}

/// `new` from element `first` on, between the old values around it.
pub(super) fn placed(old: &[f32], first: usize, new: Expected) -> Expected {
    let end = first + new.value.len();
    Expected::join([Expected::exact(&old[..first]), new, Expected::exact(&old[end..])])
}

/// A product plus `beta` times the old elements of `y` from `first` on.
pub(super) fn onto(y: &[f32], first: usize, beta: Beta, mut product: Expected) -> Expected {
    if beta == Beta::Zero {
        return product;
    }
    let sums = product.value.iter_mut().zip(&mut product.magnitude);
    for ((value, magnitude), before) in sums.zip(&y[first..]) {
        *value += f64::from(*before);
        *magnitude += f64::from(before.abs());
    }
    product
}

pub(super) fn activation(of: Activation) -> reference::glu::Activation {
    match of {
        Activation::Silu => reference::glu::Activation::Silu,
        Activation::GeluTanh => reference::glu::Activation::GeluTanh,
    }
}
