// fused_ffn/planes_dp4a24: as gemv_q/planes_dp4a24, activations as integers of 23 bits.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K, quantised, SoA-repacked
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   y: (N) f32 or f16  act: SiLU (ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: gate and up rows are taken in turn, so that LANES lanes have the four rows of two outputs; what
// they leave on lanes apart meets by two exchanges. Every workgroup rounds all of v, and sums its squares on
// that way.
// Source: own.
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_factor
// import: matvec/prologue/rms_or_plain, matvec/prologue/three_digits, matvec/schedule/soa_int8
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_factor
// import: matvec/prologue/rms_or_plain, matvec/prologue/three_digits, matvec/schedule/soa_int8
override N: u32;
const PAIRED: bool = true;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> stream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

// Row 2i is output i's gate row, row 2i + 1 its up row.
fn stored_row(row: u32) -> u32 { return row % 2u * N + row / 2u; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    let up = subgroupShuffleXor(product.value, lanes / 4u);
    let one = activate(product.value) * up;
    let other = subgroupShuffleXor(one, lanes / 2u);
    // Of four rows two outputs: the lane of the first has both.
    if (product.live && product.row % 4u == 0u) {
        let at = product.row / 2u;
        let both = at + 1u < N;
        store_pair(at, vec2<f32>(one, select(0.0, other, both)), both);
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    walk_rows(flat_index(workgroup, groups, GRID), subgroup, size, lane);
}
