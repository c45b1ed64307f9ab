//! Layouts that users' files have and our kernels do not: parts of a matrix in separate buffers,
//! tight or transposed, and caches with the heads of a token side by side. The host converts on
//! upload and on read-back; all other code sees tensors in our layout.

use std::ops::Range;

use half::f16;
use lathe_kernels::{Packing, Plane};

use super::weights::WeightRows;

/// A variable of a user's file that holds weights in a layout of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightPart {
    /// The plan's name of it.
    pub name: String,
    /// The kernel's binding.
    pub of: &'static str,
    /// The part of the binding that it holds, and its layout.
    pub layout: PartLayout,
}

/// Part of a matrix in a variable, and its layout.
#[derive(Clone, Debug, PartialEq)]
pub struct PartLayout {
    /// The rows.
    pub rows: Range<usize>,
    /// The one field of quantised blocks that it holds; else whole rows.
    pub field: Option<Plane>,
    /// Order of rows.
    pub arrangement: Arrangement,
    /// Fields of f16 are widened.
    pub widened: bool,
}

/// Order of rows in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Packed for our kernels.
    Packed(Packing),
    /// One after the other as in the file, without padding.
    Rows,
    /// Transposed: the first element, block or field of every row, then the second of every row.
    Columns,
}

impl PartLayout {
    /// Bytes of an indivisible element: a dense value, a block, or, for a field, a word of codes or
    /// the scales of a block.
    fn unit(&self, rows: &WeightRows) -> usize {
        match self.field {
            None => rows.format.block_bytes(),
            Some(_) if self.widened => 4,
            Some(Plane::Bits { .. } | Plane::Pairs) => 4,
            // Codes of a byte each.
            Some(Plane::Bytes { bytes: 32, .. }) => 4,
            Some(Plane::Bytes { bytes, .. }) => bytes,
        }
    }

    /// Bytes of a row without padding.
    fn row_bytes(&self, rows: &WeightRows) -> usize {
        match self.field {
            None => rows.row_bytes(),
            Some(field) => {
                let bytes = rows.format.blocks(rows.k) * field.bytes_of(rows.format.block_len());
                if self.widened { 2 * bytes } else { bytes }
            }
        }
    }

    /// Bytes on the device.
    pub fn device_bytes(&self, rows: &WeightRows) -> u64 {
        let bytes = match self.arrangement {
            Arrangement::Packed(packing) => {
                rows.format.packed_bytes(self.rows.len(), rows.k, packing)
            }
            Arrangement::Rows | Arrangement::Columns => self.rows.len() * self.row_bytes(rows),
        };
        bytes.next_multiple_of(4) as u64
    }

    /// Bytes for the device out of all rows of a matrix, in whole words; padding is zero.
    pub fn bytes(&self, all: &WeightRows) -> Vec<u8> {
        let rows = all.slice(self.rows.clone());
        let mut bytes = match (self.arrangement, self.field) {
            (Arrangement::Packed(packing), _) => {
                let mut bytes = vec![0; self.device_bytes(all) as usize];
                rows.pack(packing, usize::MAX, |offset, packed| {
                    bytes[offset as usize..][..packed.len()].copy_from_slice(packed);
                });
                bytes
            }
            (_, None) => rows.joined().into_owned(),
            (_, Some(field)) => {
                let bytes = rows.format.field(field, &rows.joined());
                if self.widened { widened(&bytes) } else { bytes }
            }
        };
        if self.arrangement == Arrangement::Columns {
            bytes = transposed(&bytes, self.row_bytes(all), self.unit(all));
        }
        bytes.resize(self.device_bytes(all) as usize, 0);
        bytes
    }
}

/// Values of f16 as f32.
fn widened(bytes: &[u8]) -> Vec<u8> {
    let halves = bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]));
    halves.flat_map(|half| half.to_f32().to_le_bytes()).collect()
}

/// Rows of units as columns of them.
fn transposed(bytes: &[u8], row: usize, unit: usize) -> Vec<u8> {
    let (rows, columns) = (bytes.len() / row.max(1), row / unit);
    let mut out = Vec::with_capacity(bytes.len());
    for column in 0..columns {
        for row_at in (0..rows).map(|i| i * row) {
            out.extend_from_slice(&bytes[row_at + column * unit..][..unit]);
        }
    }
    out
}

/// Order of the vectors of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvOrder {
    /// Head after head, each with its slots: our layout.
    #[default]
    Heads,
    /// Slot after slot, each with its heads; a sequence after the other.
    Tokens {
        /// Heads of a sequence.
        heads: usize,
        /// Slots of a head.
        slots: usize,
    },
}

impl KvOrder {
    /// Converts our cache to the device's layout. `each` is the number of bytes per vector.
    pub fn to_device(self, ours: Vec<u8>, each: usize) -> Vec<u8> {
        match self {
            KvOrder::Heads => ours,
            KvOrder::Tokens { heads, slots } => swapped(&ours, heads, slots, each),
        }
    }

    /// Converts the device's cache to ours.
    pub fn from_device(self, theirs: &[u8], each: usize) -> Vec<u8> {
        match self {
            KvOrder::Heads => theirs.to_vec(),
            KvOrder::Tokens { heads, slots } => swapped(theirs, slots, heads, each),
        }
    }
}

/// Matrices of `rows` by `columns` cells, each transposed.
fn swapped(bytes: &[u8], rows: usize, columns: usize, cell: usize) -> Vec<u8> {
    let matrices = bytes.chunks_exact((rows * columns * cell).max(1));
    let rest = matrices.remainder().to_vec();
    let mut out: Vec<u8> =
        matrices.flat_map(|matrix| transposed(matrix, columns * cell, cell)).collect();
    out.extend(rest);
    out
}

#[cfg(test)]
mod tests {
    use lathe_kernels::{Format, Order};

    use super::*;

    fn matrix(format: Format, rows: usize, k: usize) -> WeightRows {
        let values: Vec<f32> = (0..rows * k).map(|i| ((i * 7) % 23) as f32 - 11.0).collect();
        WeightRows::from_f32(format, Order::RowWise, k, &values)
    }

    fn layout(rows: Range<usize>, field: Option<Plane>, arrangement: Arrangement) -> PartLayout {
        PartLayout { rows, field, arrangement, widened: false }
    }

    #[test]
    fn rows_are_tight_or_columns() {
        let all = matrix(Format::F16, 4, 3);
        let value =
            |bytes: &[u8], i: usize| f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
        let of = |i: usize| ((i * 7) % 23) as f32 - 11.0;
        let tight = layout(1..4, None, Arrangement::Rows);
        let bytes = tight.bytes(&all);
        assert_eq!((bytes.len(), tight.device_bytes(&all)), (20, 20));
        assert!((0..9).all(|i| value(&bytes, i) == of(3 + i)), "{bytes:?}");
        let columns = layout(0..4, None, Arrangement::Columns).bytes(&all);
        for (row, column) in (0..4).flat_map(|row| (0..3).map(move |column| (row, column))) {
            assert_eq!(value(&columns, column * 4 + row), of(row * 3 + column));
        }
        let packed = layout(2..4, None, Arrangement::Packed(Packing::Blocks)).bytes(&all);
        assert_eq!((packed.len(), value(&packed, 8)), (32, of(9)));
    }

    /// A weight is its code, less 8, times the scale of its block, wherever these lie.
    #[test]
    fn fields_of_blocks_make_the_weights() {
        let (rows, k) = (3, 64);
        let all = matrix(Format::Q4_0, rows, k);
        let field = |name: &str| {
            Format::Q4_0.fields_apart().iter().find(|(own, _)| *own == name).expect("a field").1
        };
        let mut expected = vec![0.0; rows * k];
        super::super::weights::decode(Format::Q4_0, &all.joined(), &mut expected);
        for arrangement in [Arrangement::Rows, Arrangement::Columns] {
            let codes = layout(0..rows, Some(field("codes")), arrangement).bytes(&all);
            let d = PartLayout { widened: true, ..layout(0..rows, Some(field("d")), arrangement) };
            let d = d.bytes(&all);
            assert_eq!((codes.len(), d.len()), (rows * k / 2, rows * k / 32 * 4));
            for (row, c) in (0..rows).flat_map(|row| (0..k).map(move |c| (row, c))) {
                let at = |row: usize, unit: usize, units: usize| match arrangement {
                    Arrangement::Columns => unit * rows + row,
                    _ => row * units + unit,
                };
                let (word, block) = (at(row, c / 8, k / 8), at(row, c / 32, k / 32));
                let code = codes[4 * word + c % 8 / 2] >> (4 * (c % 2)) & 15;
                let scale = f32::from_le_bytes(d[4 * block..][..4].try_into().expect("four"));
                let value = (f32::from(code) - 8.0) * scale;
                assert_eq!(value, expected[row * k + c], "{arrangement:?} {row} {c}");
            }
        }
    }

    #[test]
    fn caches_go_there_and_back() {
        // Two sequences of two heads by three slots of two bytes.
        let ours: Vec<u8> = (0..24).collect();
        let order = KvOrder::Tokens { heads: 2, slots: 3 };
        let theirs = order.to_device(ours.clone(), 2);
        assert_eq!(theirs[..12], [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(order.from_device(&theirs, 2), ours);
        assert_eq!(KvOrder::Heads.to_device(ours.clone(), 2), ours);
    }
}
