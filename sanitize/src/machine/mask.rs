//! Sets of lanes.

/// Most invocations of a workgroup.
pub(crate) const MOST_LANES: u32 = 1024;

/// A set of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask([u64; MOST_LANES as usize / 64]);

impl Mask {
    pub(crate) const EMPTY: Self = Self([0; MOST_LANES as usize / 64]);

    /// The first lanes.
    pub(crate) fn first(count: u32) -> Self {
        let mut mask = Self::EMPTY;
        (0..count).for_each(|lane| mask.insert(lane as usize));
        mask
    }

    pub(crate) fn insert(&mut self, lane: usize) {
        self.0[lane / 64] |= 1 << (lane % 64);
    }

    pub(crate) fn has(&self, lane: usize) -> bool {
        self.0[lane / 64] >> (lane % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Lowest lane.
    pub(crate) fn lowest(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(64 * word + self.0[word].trailing_zeros() as usize)
    }

    fn zip(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        let mut mask = Self::EMPTY;
        for (to, (a, b)) in mask.0.iter_mut().zip(self.0.into_iter().zip(other.0)) {
            *to = each(a, b);
        }
        mask
    }

    pub(crate) fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Calls `each` for every lane in order.
    #[inline]
    pub(crate) fn each(&self, mut each: impl FnMut(usize)) {
        for (at, word) in self.0.iter().enumerate() {
            if *word == u64::MAX {
                (64 * at..64 * at + 64).for_each(&mut each);
                continue;
            }
            let mut rest = *word;
            while rest != 0 {
                each(64 * at + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }

    /// Lanes of a column that are true.
    pub(crate) fn of(column: &[u32]) -> Self {
        let mut mask = Self::EMPTY;
        for (word, lanes) in mask.0.iter_mut().zip(column.chunks(64)) {
            for (i, value) in lanes.iter().enumerate() {
                *word |= u64::from(*value != 0) << i;
            }
        }
        mask
    }
}
