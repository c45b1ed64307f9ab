// matmul/tiled: 16 x 16 elements of y a workgroup, tiles of x and W in workgroup memory.
//
// Idea: a workgroup loads each operand once for sixteen elements of y and decodes a weight once
// for sixteen rows of x. 64 elements deep, a tile gives each of the 256 invocations one load of
// eight values, whole 16-byte words of a row. One element an invocation: two reads of workgroup
// memory for four multiply-adds, which is what bounds it.
// import: format/weight_eight, grid, matmul/parts/x_words

const TILE: u32 = 16u;
// Rows of 64 elements and four of padding, so that sixteen rows lie in different banks.
const TILE_STRIDE: u32 = 17u;
var<workgroup> xs: array<vec4<f32>, 272>;
var<workgroup> ws: array<vec4<f32>, 272>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, groups);
    let tiles = (N_TOKENS + TILE - 1u) / TILE;
    let m0 = group % tiles * TILE;
    let n0 = group / tiles * TILE;
    // The first half of the invocations loads x, the second W.
    let at = lid % 128u / 8u;
    let i = lid % 8u;
    let n = lid % TILE;
    let m = lid / TILE;
    var sum = 0.0;
    for (var k = 0u; k < K; k += 64u) {
        if (lid < 128u) {
            let e = decode_x(load_x_words(m0 + at, k + 8u * i));
            xs[at * TILE_STRIDE + 2u * i] = e.low;
            xs[at * TILE_STRIDE + 2u * i + 1u] = e.high;
        } else {
            var raw: Raw;
            if (n0 + at < ROWS && k + 8u * i < K) { raw = load_weights(n0 + at, k + 8u * i); }
            let e = decode_weights(raw, k + 8u * i);
            ws[at * TILE_STRIDE + 2u * i] = e.low;
            ws[at * TILE_STRIDE + 2u * i + 1u] = e.high;
        }
        workgroupBarrier();
        for (var j = 0u; j < 16u; j++) { sum += dot(xs[m * TILE_STRIDE + j], ws[n * TILE_STRIDE + j]); }
        workgroupBarrier();
    }
    if (m0 + m < N_TOKENS && n0 + n < ROWS) {
        let at = (m0 + m) * (Y_OFFSET + ROWS + Y_AFTER) + Y_OFFSET + n0 + n;
        if (BETA == BETA_1) { sum += y[at]; }
        y[at] = sum;
    }
}
