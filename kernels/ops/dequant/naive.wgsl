// dequant/naive: one invocation two weights.
//
//   y[r][k] = W[r][k]        W: (ROWS, K) in blocks  y: (ROWS, K) f32 or f16, tight
//
// Idea: the formats' definition, byte by byte. Two weights, because two f16 make a word; they may
// lie in two rows. Blocks begin at any even byte, so nothing is loaded wider than a word.
// import: format/store_pair, format/weight_at, grid
override ACT_FORMAT: u32;
override ROWS: u32;
override K: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = 2u * (group_index(workgroup, groups) * WG + lid);
    if (at >= ROWS * K) { return; }
    let both = at + 1u < ROWS * K;
    var v = vec2<f32>(weight_at(at / K, at % K, K), 0.0);
    if (both) { v.y = weight_at((at + 1u) / K, (at + 1u) % K, K); }
    store_pair(at, v, both);
}
