// residual_rms_norm/subgroup: one workgroup a row, subgroup sums, 16 bytes a load; N a multiple of 4.
//
// Idea: as workgroup, with two barriers a sum instead of the tree's log2(WG), and a workgroup wide
// enough that most invocations own four elements.
// import: format/store_four, reduce/subgroups
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> delta: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> post_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> next_weight: array<vec4<f32>>;

// Fours of elements an invocation keeps in registers; those of a longer vector are read again.
const MOST_KEPT: u32 = 4u;

// The weight of a norm of the branch.
fn post(i: u32) -> vec4<f32> {
    if (POST_NORM == NORM_NONE) { return vec4<f32>(1.0); }
    return vec4<f32>(f32(WEIGHT_OFFSET)) + post_weight[i];
}

fn next(i: u32) -> vec4<f32> { return vec4<f32>(f32(WEIGHT_OFFSET)) + next_weight[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let fours = N / 4u;
    let base = workgroup.x * fours;
    let rounds = (fours + WG - 1u) / WG;
    var deltas: array<vec4<f32>, MOST_KEPT>;
    var xs: array<vec4<f32>, MOST_KEPT>;
    var posts: array<vec4<f32>, MOST_KEPT>;
    var nexts: array<vec4<f32>, MOST_KEPT>;
    var squares = 0.0;
    // Whatever can be loaded is, before the first sum makes everyone wait.
    for (var j = 0u; j < rounds; j++) {
        let i = j * WG + lid;
        if (i < fours) {
            let d = delta[base + i];
            squares += dot(d, d);
            if (j < MOST_KEPT) {
                deltas[j] = d;
                xs[j] = x[base + i];
                posts[j] = post(i);
                nexts[j] = next(i);
            }
        }
    }
    var scale = 1.0;
    if (POST_NORM == NORM_RMS) {
        scale = inverseSqrt(sum_of_subgroups(lane, subgroup, subgroups, squares) / f32(N) + EPS);
    }
    squares = 0.0;
    for (var j = 0u; j < rounds; j++) {
        let i = j * WG + lid;
        if (i < fours) {
            var v = vec4<f32>(0.0);
            if (j < MOST_KEPT) {
                v = xs[j] + deltas[j] * scale * posts[j];
                xs[j] = v;
            } else {
                v = x[base + i] + delta[base + i] * scale * post(i);
            }
            x[base + i] = v;
            squares += dot(v, v);
        }
    }
    scale = inverseSqrt(sum_of_subgroups(lane, subgroup, subgroups, squares) / f32(N) + EPS);
    for (var j = 0u; j < rounds; j++) {
        let i = j * WG + lid;
        if (i < fours) {
            if (j < MOST_KEPT) {
                store_four(base + i, xs[j] * scale * nexts[j]);
            } else {
                store_four(base + i, x[base + i] * scale * next(i));
            }
        }
    }
}
