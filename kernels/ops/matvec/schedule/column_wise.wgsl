// Blocks that run down the columns of W: sixteen bytes of quants are 32 rows of one column, and a
// lane keeps 32 sums. SPLITS workgroups share the columns of 256 rows; a second dispatch adds them
// up.
// import: grid, matvec/rows/soa
// import: matvec/epilogue/rows_of_y
// requires: override N_VECTORS: u32
// requires: var parts: array<f32>
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
// requires: fn x_one(i: u32) -> f32
override SPLITS: u32 = 1u;
override WG: u32 = 128u; // a power of two from 16 on

override SLOTS: u32 = 4u * WG;
var<workgroup> slice_sums: array<vec4<f32>, SLOTS>;

// Sums of 32 rows, and what all of them have in common.
var<private> slice_rows: array<vec4<f32>, 8> = array<vec4<f32>, 8>();
var<private> rest: f32 = 0.0;

fn add_chunk(chunk: SoaChunk, c: u32, v: f32) {
    let s = soa_scales(chunk.scale, c);
    let f = s.x * v;
    let p = quants_at(chunk, 0u);
    let q = quants_at(chunk, 1u);
    let r = quants_at(chunk, 2u);
    let t = quants_at(chunk, 3u);
    slice_rows[0] += f * p.low;
    slice_rows[1] += f * p.high;
    slice_rows[2] += f * q.low;
    slice_rows[3] += f * q.high;
    slice_rows[4] += f * r.low;
    slice_rows[5] += f * r.high;
    slice_rows[6] += f * t.low;
    slice_rows[7] += f * t.high;
    rest += s.y * v - quant_offset() * f;
}

fn tiles() -> u32 { return (ROWS + 255u) / 256u; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, groups);
    if (group >= tiles() * SPLITS * N_VECTORS) { return; }
    let part = group / tiles(); // vector and split
    let slice = lid / 8u;
    let slices = WG / 8u;
    let row_chunk = min(8u * (group % tiles()) + lid % 8u, (ROWS + 31u) / 32u - 1u);
    let start = part / SPLITS * K;
    let step = SPLITS * slices;
    for (var k = part % SPLITS * slices + slice; k < K; k += 4u * step) {
        let k1 = min(k + step, K - 1u);
        let k2 = min(k + 2u * step, K - 1u);
        let k3 = min(k + 3u * step, K - 1u);
        let w0 = load_soa_chunk(k * stream_stride(), row_chunk);
        let w1 = load_soa_chunk(k1 * stream_stride(), row_chunk);
        let w2 = load_soa_chunk(k2 * stream_stride(), row_chunk);
        let w3 = load_soa_chunk(k3 * stream_stride(), row_chunk);
        add_chunk(w0, row_chunk, x_one(start + k));
        if (k + step < K) { add_chunk(w1, row_chunk, x_one(start + k1)); }
        if (k + 2u * step < K) { add_chunk(w2, row_chunk, x_one(start + k2)); }
        if (k + 3u * step < K) { add_chunk(w3, row_chunk, x_one(start + k3)); }
    }
    for (var i = 0u; i < 8u; i++) { slice_rows[i] += rest; }

    // The upper half of the slices hands its sums to the lower half, until one slice has all.
    for (var half = slices / 2u; half > 0u; half /= 2u) {
        if (slice >= half && slice < 2u * half) {
            for (var i = 0u; i < 8u; i++) { slice_sums[i * (WG / 2u) + lid - 8u * half] = slice_rows[i]; }
        }
        workgroupBarrier();
        if (slice < half) {
            for (var i = 0u; i < 8u; i++) { slice_rows[i] += slice_sums[i * (WG / 2u) + lid]; }
        }
        workgroupBarrier();
    }
    if (slice == 0u) {
        let first = 32u * (8u * (group % tiles()) + lid);
        for (var i = 0u; i < 8u; i++) {
            for (var j = 0u; j < 4u; j++) {
                let row = first + 4u * i + j;
                if (row < ROWS) { parts[part * ROWS + row] = slice_rows[i][j]; }
            }
        }
    }
}

@compute @workgroup_size(64)
fn sum(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = group_index(workgroup, groups) * 64u + lid;
    if (at >= N_VECTORS * ROWS) { return; }
    let vector = at / ROWS;
    let row = at % ROWS;
    var all = 0.0;
    for (var i = 0u; i < SPLITS; i++) { all += parts[(vector * SPLITS + i) * ROWS + row]; }
    store_y(y_at(vector, row), all, old_y(y_at(vector, row)));
}
