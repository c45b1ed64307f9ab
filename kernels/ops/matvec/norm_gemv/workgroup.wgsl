// norm_gemv/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32           WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: every row's lanes meet all of x anyway, so they sum its squares beside the product: no
// barrier and no load waits for the norm. Two barriers join the lanes. The rung for adapters and
// browsers without subgroup operations.
// import: grid, matvec/rows/rms16, matvec/schedule/share
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // any number up to WG

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> slots: array<Partial, WG>;

const FAN: u32 = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    // Invocations beyond the last whole row of a workgroup have none.
    let row = group_index(workgroup, groups) * (WG / LANES) + lid / LANES;
    let mine = row < ROWS && lid / LANES < WG / LANES;
    var sum = Partial();
    if (mine) { sum = share(row, lane, LANES); }
    slots[lid] = sum;
    workgroupBarrier();
    if (mine && lane < FAN) {
        for (var i = FAN; lane + i < LANES; i += FAN) { sum += slots[lid + i]; }
        slots[lid] = sum;
    }
    workgroupBarrier();
    if (mine && lane == 0u) {
        for (var i = 1u; i < min(FAN, LANES); i++) { sum += slots[lid + i]; }
        y[Y_OFFSET + row] = epilogue(sum);
    }
}
