//! Weight matrices on their way from a file to a device: rows in one format, possibly stacked
//! from several tensors (Q over K over V), borrowed from the mapped file where nothing had to be
//! converted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lathe_kernels::{Format, Order, Packing};

use crate::model::ModelFile;
use crate::model::quantise::quantise;

/// Bytes of weight rows, tight and row-major as in the file.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a mapped model file.
    Mapped(Arc<ModelFile>, Range<usize>),
    /// Converted or generated.
    Owned(Arc<[u8]>),
}

impl Bytes {
    /// The bytes.
    pub fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file, range) => &file.bytes()[range.clone()],
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.get().len())
    }
}

/// A matrix of `rows()` rows of `k` elements, or, where its blocks run in another order, its
/// `rows()` streams of `k` values.
#[derive(Clone, Debug)]
pub struct WeightRows {
    /// Storage format of every row.
    pub format: Format,
    /// Elements of a row.
    pub k: usize,
    /// What the rows are of the matrix.
    pub order: Order,
    /// Runs of rows, stacked.
    pub parts: Vec<Bytes>,
}

impl WeightRows {
    /// A matrix of one run of rows.
    pub fn new(format: Format, k: usize, bytes: Bytes) -> Self {
        Self { format, k, order: Order::RowWise, parts: vec![bytes] }
    }

    /// A matrix of f32 values, rows of `k`, rounded to `format` in the given order.
    pub fn from_f32(format: Format, order: Order, k: usize, values: &[f32]) -> Self {
        let rows = values.len() / k;
        let (_, len) = order.streams(rows, k);
        if order == Order::ColumnWise {
            let columns = (0..values.len()).map(|i| values[i % rows * k + i / rows]);
            let columns: Vec<f32> = columns.collect();
            return Self { order, ..Self::from_f32(format, Order::RowWise, len, &columns) };
        }
        let (k, values) = (len, values);
        let bytes: Arc<[u8]> = match format {
            Format::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Format::F16 => {
                values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect()
            }
            Format::Bf16 => {
                values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect()
            }
            quantised => quantise(quantised, k, values).into(),
        };
        Self { order, ..Self::new(format, k, Bytes::Owned(bytes)) }
    }

    /// Bytes of a row as stored.
    pub fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.k)
    }

    /// Rows in all parts.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|p| self.rows_of(p)).sum()
    }

    /// Rows of one part.
    pub fn rows_of(&self, part: &Bytes) -> usize {
        part.get().len().checked_div(self.row_bytes()).unwrap_or(0)
    }

    /// Packs all rows for the kernels and hands them out in pieces of about `piece` bytes, each
    /// with its byte offset.
    pub fn pack(&self, packing: Packing, piece: usize, mut sink: impl FnMut(u64, &[u8])) {
        let (tight, stride) = (self.row_bytes(), self.format.row_stride(self.k, packing));
        if tight == 0 {
            return;
        }
        let rows_a_piece = (piece / stride).clamp(1, self.rows().max(1));
        let mut packed = vec![0; rows_a_piece * stride];
        let mut offset = 0;
        for part in &self.parts {
            for rows in part.get().chunks(rows_a_piece * tight) {
                let packed = &mut packed[..rows.len() / tight * stride];
                self.format.pack(rows, self.k, packing, packed);
                sink(offset, packed);
                offset += packed.len() as u64;
            }
        }
    }
}

/// Decodes a row of stored weights exactly.
pub fn decode(format: Format, bytes: &[u8], row: &mut [f32]) {
    oracle_format(format).decode(bytes, row);
}

/// The reference's name of a format. Two crates that do not know each other list the same ones; a
/// test holds them to it.
pub fn oracle_format(format: Format) -> lathe_reference::Format {
    lathe_reference::Format::ALL[format as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_and_packs_rows_in_pieces() {
        let a = WeightRows::from_f32(Format::F16, Order::RowWise, 3, &[1.0, 2.0, 3.0]);
        let b =
            WeightRows::from_f32(Format::F16, Order::RowWise, 3, &[4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let both = WeightRows {
            format: Format::F16,
            k: 3,
            order: Order::RowWise,
            parts: vec![a.parts[0].clone(), b.parts[0].clone()],
        };
        assert_eq!(both.rows(), 3);
        let mut all = vec![0xff; Format::F16.packed_bytes(3, 3, Packing::Blocks)];
        both.pack(Packing::Blocks, 16, |offset, bytes| {
            all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        });
        let row = |v: [f32; 3]| -> Vec<u8> {
            let mut r: Vec<u8> =
                v.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
            r.resize(16, 0);
            r
        };
        let expected = [row([1.0, 2.0, 3.0]), row([4.0, 5.0, 6.0]), row([7.0, 8.0, 9.0])].concat();
        assert_eq!(all, expected);
    }

    #[test]
    fn orders_are_streams_of_the_same_matrix() {
        let values: Vec<f32> = (0..3 * 40).map(|i| (i % 11) as f32 - 5.0).collect();
        for (order, streams, len) in
            [(Order::RowWise, 3, 40), (Order::Flat, 1, 120), (Order::ColumnWise, 40, 3)]
        {
            let w = WeightRows::from_f32(Format::Q8_0, order, 40, &values);
            assert_eq!((w.order, w.rows(), w.k), (order, streams, len));
            let mut stream = vec![0.0; len];
            for (i, bytes) in w.parts[0].get().chunks(w.row_bytes()).enumerate() {
                decode(Format::Q8_0, bytes, &mut stream);
                for (j, value) in stream.iter().enumerate() {
                    let at = match order {
                        Order::ColumnWise => j * 40 + i,
                        _ => i * 40 + j,
                    };
                    assert!((value - values[at]).abs() < 0.03, "{order:?} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn both_crates_list_the_same_formats() {
        assert_eq!(Format::ALL.len(), lathe_reference::Format::ALL.len());
        for &ours in Format::ALL {
            let oracle = oracle_format(ours);
            assert_eq!(ours.name(), oracle.name());
            assert_eq!(ours.block_len(), oracle.block_len());
            assert_eq!(ours.block_bytes(), oracle.block_bytes());
        }
    }
}
