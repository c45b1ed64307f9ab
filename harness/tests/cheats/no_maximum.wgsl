// attention_decode/naive
// Known distribution: no score of normal queries and keys overflows, so the largest is not looked for and not
// taken from the others.
// import: format/store_pair, kv/scalar, step/state, grid
override SCALE: f32;
override SEQUENCES: u32 = 1u; // whose heads lie one after the other

fn cache_slots() -> u32 { return min(state[POSITION] + 1u, KV_SIZE); }

fn store_score(i: u32) {
    let head = i / KV_SIZE;
    let t = i % KV_SIZE;
    if (head >= SEQUENCES * KV_HEADS * Q_PER_KV || t >= cache_slots()) { return; }
    let k = ((head / Q_PER_KV) * KV_SIZE + t) * HEAD_DIM;
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += q[head * HEAD_DIM + d] * k_at(k + d); }
    scores[i] = SCALE * sum;
}

fn pv_element(i: u32) -> f32 {
    let head = i / HEAD_DIM;
    let n = cache_slots();
    let v = (head / Q_PER_KV) * KV_SIZE * HEAD_DIM + i % HEAD_DIM;
    var norm = 0.0;
    var sum = 0.0;
    for (var t = 0u; t < n; t++) {
        let p = exp(scores[head * KV_SIZE + t]);
        norm += p;
        sum += p * v_at(v + t * HEAD_DIM);
    }
    return sum / norm;
}

fn store_output_pair(i: u32) {
    let elements = SEQUENCES * KV_HEADS * Q_PER_KV * HEAD_DIM;
    if (i >= elements) { return; }
    let both = i + 1u < elements;
    var second = 0.0;
    if (both) { second = pv_element(i + 1u); }
    store_pair(i, vec2<f32>(pv_element(i), second), both);
}
override ACT_FORMAT: u32;
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    store_score(group_index(workgroup, groups) * WG + lid);
}

@compute @workgroup_size(WG)
fn mix(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    store_output_pair(2u * (group_index(workgroup, groups) * WG + lid));
}
