// rms_norm/workgroup: one workgroup a row, a tree in workgroup memory.
//
//   y[r][i] = x[r][i] / sqrt(mean_j x[r][j]^2 + EPS) * (WEIGHT_OFFSET + weight[i])
//   x, y: (ROWS, N)  weight: (N)  y f32 or f16
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: WG invocations stride over the row; the second read of x hits the cache.
// import: format/store_pair, reduce/tree
override ACT_FORMAT: u32;
override ROWS: u32;
override N: u32;
override EPS: f32;
override WEIGHT_OFFSET: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let base = workgroup.x * N;
    var sum = 0.0;
    for (var i = lid; i < N; i += WG) { sum += x[base + i] * x[base + i]; }
    let scale = inverseSqrt(workgroup_sum(lid, sum) / f32(N) + EPS);
    for (var i = lid; 2u * i < N; i += WG) {
        let both = 2u * i + 1u < N;
        let at = base + 2u * i;
        var v = vec2<f32>(x[at] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i]), 0.0);
        if (both) { v.y = x[at + 1u] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i + 1u]); }
        store_pair(at, v, both);
    }
}
