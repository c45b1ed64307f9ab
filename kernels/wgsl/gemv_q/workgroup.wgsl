// gemv_q/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups needed.
//
//   y[c][FIRST + r] = sum_k W[r][k] * x[c][k]
//   W: (ROWS, K) quantised, in planes  x: (COLS, K) f32 or f16  y: (COLS, FIRST + ROWS)
//
// Idea: the loads of `planes`, then a tree in workgroup memory. The rung for adapters and browsers
// without subgroup operations. Several columns are taken one after another: the weights of the
// later ones come from the cache.
// uses: planes, x_four, x_tile, grid
override FIRST: u32;
override COLS: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> slots: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    let row = group_index(workgroup, groups) * (WG / LANES) + lid / LANES;
    // Past the end the last row again; the result is dropped.
    let base = row_base(min(row, ROWS - 1u));
    let first = row_first(min(row, ROWS - 1u));
    for (var col = 0u; col < COLS; col++) {
        var sum = 0.0;
        for (var tile = 0u; tile < row_chunks(); tile += TILE) {
            stage_x(lid, col, tile);
            let end = min(row_chunks(), tile + TILE);
            for (var c = tile + lane; c < end; c += LANES) {
                sum += dot_chunk(load_chunk(base, first + c), first + c, load_x(c - tile));
            }
            workgroupBarrier();
        }
        slots[lid] = sum;
        workgroupBarrier();
        for (var step = LANES / 2u; step > 0u; step /= 2u) {
            if (lane < step) { slots[lid] += slots[lid + step]; }
            workgroupBarrier();
        }
        if (lane == 0u && row < ROWS) { y[col * (FIRST + ROWS) + FIRST + row] = slots[lid]; }
    }
}
