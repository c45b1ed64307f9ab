// Sums of a part of the columns of the matrix into memory of their own, and a second stage that adds them:
// partials are (SPLITS, N_TOKENS, ROWS).
// import: grid
// requires: type FragmentC
// requires: override N_TOKENS, ROWS: u32
// requires: var partials, y: array<f32>
override SPLITS: u32 = 2u;
override Y_OFFSET: u32;
override Y_AFTER: u32;
override BETA: u32;

fn aligned_rows() -> bool { return ROWS % 4u == 0u; }

fn has_first_sums() -> bool { return false; }

fn first_sums(split: u32, m: u32, n: u32) -> FragmentC { return FragmentC(); }

// naga 30 evaluates an index written inside coopStoreT after the store: it needs a name before.
fn store_sums(c: FragmentC, split: u32, m: u32, n: u32) {
    let at = (split * N_TOKENS + m) * ROWS + n;
    coopStoreT(c, &partials[at], ROWS);
}

fn add_sum(split: u32, m: u32, n: u32, sum: f32) {
    partials[(split * N_TOKENS + m) * ROWS + n] = sum;
}

const SUM_WG: u32 = 256u;

// One invocation an element of y.
@compute @workgroup_size(SUM_WG)
fn sum(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * SUM_WG + lid;
    if (i >= N_TOKENS * ROWS) { return; }
    let at = i / ROWS * (Y_OFFSET + ROWS + Y_AFTER) + Y_OFFSET + i % ROWS;
    var all = select(0.0, y[at], BETA == BETA_1);
    for (var split = 0u; split < SPLITS; split++) { all += partials[split * N_TOKENS * ROWS + i]; }
    y[at] = all;
}
