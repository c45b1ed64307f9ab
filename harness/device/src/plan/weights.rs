//! Weight matrices on their way from a file to a device: rows in one format, possibly stacked
//! from several tensors (Q over K over V), borrowed from the mapped file where nothing had to be
//! converted.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lathe_kernels::{Format, Order, Packing};
use lathe_model::Mapped;
use lathe_model::quantise::{encode, quantise, quantise_searched};
use rayon::prelude::*;

pub use lathe_model::quantise::{decode, oracle_format};

/// Values that a task encodes, about.
const ELEMENTS_A_TASK: usize = 1 << 16;

/// Bytes that a task packs, about.
const PACKED_A_TASK: usize = 1 << 18;

/// Bytes of weight rows, tight and row-major as in the file.
#[derive(Clone)]
pub enum Bytes {
    /// A range of a mapped model file.
    Mapped(Arc<Mapped>, Range<usize>),
    /// A range of what was converted or generated.
    Owned(Arc<[u8]>, Range<usize>),
}

impl Bytes {
    /// All of these.
    pub fn owned(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let all = 0..bytes.len();
        Self::Owned(bytes, all)
    }

    /// The bytes.
    pub fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file, range) => &file.bytes()[range.clone()],
            Bytes::Owned(bytes, range) => &bytes[range.clone()],
        }
    }

    /// Some of them.
    fn part(&self, here: Range<usize>) -> Self {
        let within = |range: &Range<usize>| range.start + here.start..range.start + here.end;
        match self {
            Bytes::Mapped(file, range) => Bytes::Mapped(Arc::clone(file), within(range)),
            Bytes::Owned(bytes, range) => Bytes::Owned(Arc::clone(bytes), within(range)),
        }
    }

    /// Says that a range will be read soon, so that it comes from disk meanwhile.
    fn prefetch(&self, range: Range<usize>) {
        if let Bytes::Mapped(file, all) = self {
            let end = (all.start + range.end).min(all.end);
            file.prefetch(all.start + range.start..end);
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
    /// Relation of the rows to the matrix.
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
        let encode = |values: &[f32]| -> Vec<u8> {
            if format.is_dense() { encode(format, values) } else { quantise(format, k, values) }
        };
        // Whole rows a task.
        let a_task = k * (ELEMENTS_A_TASK / k.max(1)).max(1);
        let parts: Vec<Vec<u8>> = values.par_chunks(a_task.max(1)).map(encode).collect();
        Self { order, ..Self::new(format, k, Bytes::owned(parts.concat())) }
    }

    /// The matrix in another format, row-wise, with a search for the scales of quantised formats;
    /// none if a value is not finite.
    pub fn converted(&self, format: Format) -> Option<Self> {
        let (k, row_bytes) = (self.k, self.row_bytes());
        let task_rows = (ELEMENTS_A_TASK / k.max(1)).max(1);
        let mut tasks = Vec::new();
        for part in &self.parts {
            tasks.extend(part.get().chunks(task_rows * row_bytes.max(1)));
        }
        let convert = |rows: &[u8]| -> Option<Vec<u8>> {
            let mut values = vec![0.0; rows.len() / row_bytes * k];
            for (row, values) in rows.chunks_exact(row_bytes).zip(values.chunks_exact_mut(k)) {
                decode(self.format, row, values);
            }
            let finite = values.iter().all(|v| v.is_finite());
            finite.then(|| match format.is_dense() {
                true => encode(format, &values),
                false => quantise_searched(format, k, &values),
            })
        };
        let parts: Option<Vec<Vec<u8>>> = tasks.into_par_iter().map(convert).collect();
        Some(Self::new(format, k, Bytes::owned(parts?.concat())))
    }

    /// Some of the rows, as a matrix of their own.
    pub fn slice(&self, rows: Range<usize>) -> Self {
        let bytes = self.row_bytes();
        let mut parts = Vec::new();
        let mut first = 0;
        for part in &self.parts {
            let end = first + self.rows_of(part);
            let here = rows.start.clamp(first, end) - first..rows.end.clamp(first, end) - first;
            let here = here.start * bytes..here.end * bytes;
            first = end;
            if here.is_empty() {
                continue;
            }
            parts.push(part.part(here));
        }
        Self { format: self.format, k: self.k, order: self.order, parts }
    }

    /// Rotates the rows by so many; where there is a single one, its blocks.
    pub fn turned(&self, by: usize) -> Self {
        let rows = self.rows();
        if rows > 1 {
            let mut turned = self.slice(rows - by..rows);
            turned.parts.extend(self.slice(0..rows - by).parts);
            return turned;
        }
        let mut all = self.joined().into_owned();
        all.rotate_right(by * self.format.block_bytes());
        Self { parts: vec![Bytes::owned(all)], ..self.clone() }
    }

    /// The matrix in as few parts as fit bindings of `limit` bytes, however they are packed, with
    /// the first row of each. Parts are equally long but for the last, so that one pipeline serves
    /// them.
    pub fn split(&self, limit: u64) -> Vec<(usize, Self)> {
        let stride = |packing| self.format.row_stride(self.k, packing) as u64;
        let stride = stride(Packing::Blocks).max(stride(Packing::Planes)).max(1);
        let most = usize::try_from(limit / stride).unwrap_or(usize::MAX).max(1);
        if self.rows() <= most {
            return vec![(0, self.clone())];
        }
        let each = self.rows().div_ceil(self.rows().div_ceil(most));
        let firsts = (0..self.rows()).step_by(each);
        firsts.map(|first| (first, self.slice(first..(first + each).min(self.rows())))).collect()
    }

    /// The bytes of all parts, one after another.
    pub fn joined(&self) -> Cow<'_, [u8]> {
        match &self.parts[..] {
            [part] => Cow::Borrowed(part.get()),
            parts => Cow::Owned(parts.iter().map(Bytes::get).collect::<Vec<_>>().concat()),
        }
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
    /// with its byte offset. Rows that kernels read as they are stored are handed out as they lie
    /// in the file; others are packed on all cores.
    pub fn pack(&self, packing: Packing, piece: usize, mut sink: impl FnMut(u64, &[u8])) {
        let (tight, stride) = (self.row_bytes(), self.format.row_stride(self.k, packing));
        if tight == 0 {
            return;
        }
        let rows_a_piece = (piece / stride).clamp(1, self.rows().max(1));
        let as_stored = packing == Packing::Blocks && tight == stride;
        let mut packed = vec![0; if as_stored { 0 } else { rows_a_piece * stride }];
        let task_rows = (PACKED_A_TASK / stride).max(1);
        let mut offset = 0;
        for part in &self.parts {
            let piece = rows_a_piece * tight;
            part.prefetch(0..piece);
            for (i, rows) in part.get().chunks(piece).enumerate() {
                part.prefetch((i + 1) * piece..(i + 2) * piece);
                let bytes = rows.len() / tight * stride;
                if as_stored {
                    sink(offset, rows);
                } else {
                    let packed = &mut packed[..bytes];
                    let tasks = packed.par_chunks_mut(task_rows * stride);
                    tasks.zip(rows.par_chunks(task_rows * tight)).for_each(|(packed, rows)| {
                        self.format.pack(rows, self.k, packing, packed);
                    });
                    sink(offset, packed);
                }
                offset += bytes as u64;
            }
        }
    }
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
    fn splits_at_rows() {
        let values: Vec<f32> = (0..21).map(|v| v as f32).collect();
        let row_wise = |v: &[f32]| WeightRows::from_f32(Format::F32, Order::RowWise, 3, v);
        let a = row_wise(&values[..12]);
        let b = row_wise(&values[12..]);
        let parts = vec![a.parts[0].clone(), b.parts[0].clone()];
        let all = WeightRows { parts, ..a };
        assert_eq!(all.split(7 * 16).len(), 1);
        // Two packed rows fit 47 bytes, so seven rows are four parts of two rows but for the last.
        let parts = all.split(47);
        assert_eq!(
            parts.iter().map(|(f, m)| (*f, m.rows())).collect::<Vec<_>>(),
            [(0, 2), (2, 2), (4, 2), (6, 1)]
        );
        let bytes =
            |m: &WeightRows| m.parts.iter().flat_map(|p| p.get().to_vec()).collect::<Vec<_>>();
        assert_eq!(parts.iter().flat_map(|(_, m)| bytes(m)).collect::<Vec<_>>(), bytes(&all));
        // A part may hold rows of both runs.
        assert_eq!(all.slice(3..5).parts.len(), 2);
    }
}
