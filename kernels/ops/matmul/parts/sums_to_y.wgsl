// Sums of a whole product into y.
// requires: type FragmentC
// requires: override ROWS: u32
// requires: var y: array<f32>
override Y_OFFSET: u32;
override Y_AFTER: u32;
override BETA: u32;
override SPLITS: u32 = 1u;

fn aligned_rows() -> bool { return Y_OFFSET % 4u == 0u && (ROWS + Y_AFTER) % 4u == 0u; }

fn has_first_sums() -> bool { return BETA == BETA_1; }

fn first_sums(split: u32, m: u32, n: u32) -> FragmentC {
    let row = Y_OFFSET + ROWS + Y_AFTER;
    let at = m * row + Y_OFFSET + n;
    return coopLoadT<FragmentC>(&y[at], row);
}

// naga 30 evaluates an index written inside coopStoreT after the store: it needs a name before.
fn store_sums(c: FragmentC, split: u32, m: u32, n: u32) {
    let row = Y_OFFSET + ROWS + Y_AFTER;
    let at = m * row + Y_OFFSET + n;
    coopStoreT(c, &y[at], row);
}

fn add_sum(split: u32, m: u32, n: u32, sum: f32) {
    let at = m * (Y_OFFSET + ROWS + Y_AFTER) + Y_OFFSET + n;
    y[at] = sum + select(0.0, y[at], BETA == BETA_1);
}
