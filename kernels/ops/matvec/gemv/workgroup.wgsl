// gemv/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups needed.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]    W: (ROWS, K)  x: (N_VECTORS, K) f32 or f16
//   y: (N_VECTORS, Y_OFFSET + ROWS), f32 accumulation
//
// Idea: neighbouring invocations read neighbouring chunks, all loads of a round in flight together;
// then eight of them add up the row's sums and one adds up the eight: two barriers where a tree
// has log2(LANES). The rung for adapters and browsers without subgroup operations.
// import: grid, matvec/epilogue/store, matvec/prologue/columns, matvec/rows/dense
// import: matvec/rows/dense16, matvec/schedule/share
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u;
override SLOTS: u32 = WG * N_VECTORS;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> slots: array<f32, SLOTS>;

const FAN: u32 = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lanes = min(LANES, WG);
    let lane = lid % lanes;
    // Invocations beyond the last whole row of a workgroup repeat what the next one does.
    let row = group_index(workgroup, groups) * (WG / lanes) + lid / lanes;
    let mine = row < ROWS && lid / lanes < WG / lanes;
    var sums: array<f32, 8>;
    if (mine && N_VECTORS == 1u) { sums[0] = share(row, lane, lanes); }
    if (mine && N_VECTORS > 1u) {
        for (var c = lane; c < row_chunks(); c += lanes) {
            let w = load_chunk(row, c);
            for (var column = 0u; column < N_VECTORS; column++) {
                sums[column] += dot_chunk(w, load_x_column(column, c));
            }
        }
    }
    for (var column = 0u; column < N_VECTORS; column++) { slots[column * WG + lid] = sums[column]; }
    workgroupBarrier();
    if (mine && lane < FAN) {
        for (var column = 0u; column < N_VECTORS; column++) {
            let at = column * WG + lid;
            var sum = slots[at];
            for (var i = FAN; lane + i < lanes; i += FAN) { sum += slots[at + i]; }
            slots[at] = sum;
        }
    }
    workgroupBarrier();
    if (mine && lane == 0u) {
        for (var column = 0u; column < N_VECTORS; column++) {
            let at = column * WG + lid;
            var sum = slots[at];
            for (var i = 1u; i < min(FAN, lanes); i++) { sum += slots[at + i]; }
            store_y(y_at(column, row), sum, old_y(y_at(column, row)));
        }
    }
}
