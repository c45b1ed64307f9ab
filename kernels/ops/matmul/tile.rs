//! Tiles of a product on matrix units, and parts of its columns.

use crate::declare::*;

/// Workgroups below which a GPU of a hundred or more compute units idles: smaller tiles then.
pub(super) const ENOUGH: usize = 128;

/// Sizes of a product.
#[derive(Clone, Copy)]
pub(super) struct Product {
    /// Rows of x.
    pub(super) n_tokens: usize,
    /// Rows of the matrix.
    pub(super) rows: usize,
    /// Columns of the matrix.
    pub(super) k: usize,
}

impl Product {
    /// Tiles of `tm` rows of x and `tn` rows of the matrix.
    pub(super) fn tiles(self, tm: usize, tn: usize) -> usize {
        self.n_tokens.div_ceil(tm) * self.rows.div_ceil(tn)
    }
}

/// Tiles on 16 x 16 matrix units.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Rows of x.
    pub(super) tm: usize,
    /// Rows of the matrix.
    pub(super) tn: usize,
    /// Columns at a time.
    pub(super) tk: usize,
    /// Fragments of a subgroup, down and across.
    pub(super) fragments: (usize, usize),
}

impl Tile {
    /// The tile where larger ones leave most of a GPU idle, or do not fit its registers.
    pub(super) const SMALL: Self = Self { tm: 64, tn: 64, tk: 64, fragments: (2, 2) };

    /// The largest tile that the tokens fill, with four subgroups.
    pub(super) fn of(n_tokens: usize) -> Self {
        match n_tokens {
            ..=16 => Self { tm: 16, tn: 64, tk: 64, fragments: (1, 1) },
            17..=32 => Self { tm: 32, tn: 64, tk: 64, fragments: (2, 1) },
            33..=64 => Self::SMALL,
            _ => Self { tm: 128, tn: 128, tk: 32, fragments: (4, 4) },
        }
    }

    /// Number of parts of the columns that gives as many workgroups as `wanted`, each with a few
    /// tiles to go through.
    pub(super) fn splits(self, p: Product, wanted: usize) -> usize {
        wanted.div_ceil(p.tiles(self.tm, self.tn)).min(p.k / (4 * self.tk)).max(1)
    }

    /// Values of a variant's overrides.
    pub(super) fn overrides(self, caps: &Capabilities) -> Overrides {
        let Self { tm, tn, tk, fragments: (down, across) } = self;
        let sizes = [("TM", tm), ("TN", tn), ("TK", tk), ("FM", down), ("FN", across)];
        let subgroup = ("SG", f64::from(caps.subgroup.map_or(32, |(_, max)| max)));
        sizes.iter().map(|(name, size)| (*name, *size as f64)).chain([subgroup]).collect()
    }
}
