// qkv_rope_append/subgroup: one workgroup a head, subgroup sums.
//
//   q[h] = rope(norm(qkv.q[h], q_norm))                       KV_HEADS*Q_PER_KV query heads
//   k_cache[h][position % KV_SIZE] = rope(norm(qkv.k[h], k_norm));  v_cache likewise = qkv.v[h]
//   norm(h, w) = h / sqrt(mean(h^2) + EPS) * w with NORM_RMS, else h
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   ROPE_INTERLEAVED: pairs (2i, 2i+1), interleaved; 1: pairs (i, i + HEAD_DIM/2), NeoX
//   qkv: [q | k | v] x HEAD_DIM  q: heads x HEAD_DIM  caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//
// Idea: as workgroup, with two barriers instead of the tree's log2(WG).
// import: reduce/subgroups, rope/append, rope/heads, step/state
override WG: u32 = 64u; // at least HEAD_DIM/4

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> q_norm: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> k_norm: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> rope: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let head = workgroup.x;
    let position = state[POSITION];
    let mine = lid < HEAD_DIM / 4u;
    // An invocation beyond the head repeats the first quad and drops it.
    let i = select(0u, lid, mine);
    let v = load_quad(head, i);
    let w = norm_quad(head, i);
    let t = rotations(head, i, position);
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) {
        let sum = sum_of_subgroups(lane, subgroup, subgroups, select(0.0, quad_squares(v), mine));
        scale = inverseSqrt(sum / f32(HEAD_DIM) + EPS);
    }
    if (mine) { place(head, i, v, scale, w, t, position); }
}
