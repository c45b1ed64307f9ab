// matmul_rmsnorm_fused/naive: one invocation a row, then one for the rest; any format.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: the formula in two dispatches, nothing else.
// import: format/load_one, format/store_pair, format/weight_at, grid
override ROWS: u32;
override K: u32;
override EPS: f32;
override WEIGHT_OFFSET: u32;
override POST_NORM: u32;
override NEXT_NORM: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<f32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

@compute @workgroup_size(WG)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    var sum = 0.0;
    for (var i = 0u; i < K; i++) { sum += weight_at(row, i, K) * x_at(i); }
    branch[row] = sum;
}

@compute @workgroup_size(1)
fn norms() {
    var squares = 0.0;
    for (var r = 0u; r < ROWS; r++) { squares += branch[r] * branch[r]; }
    let post = inverseSqrt(squares / f32(ROWS) + EPS);
    squares = 0.0;
    for (var r = 0u; r < ROWS; r++) {
        var b = branch[r];
        if (POST_NORM == NORM_RMS) { b *= post * (f32(WEIGHT_OFFSET) + post_weight[r]); }
        let v = stream[r] + b;
        stream[r] = v;
        squares += v * v;
    }
    if (NEXT_NORM == NORM_NONE) { return; }
    let scale = inverseSqrt(squares / f32(ROWS) + EPS);
    for (var r = 0u; r < ROWS; r += 2u) {
        let both = r + 1u < ROWS;
        var v = vec2<f32>(stream[r] * scale * (f32(WEIGHT_OFFSET) + next_weight[r]), 0.0);
        if (both) { v.y = stream[r + 1u] * scale * (f32(WEIGHT_OFFSET) + next_weight[r + 1u]); }
        store_pair(r, v, both);
    }
}
