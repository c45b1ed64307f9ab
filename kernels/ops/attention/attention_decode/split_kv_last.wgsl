// attention_decode/split_kv_last: split_kv in one dispatch; the last split to arrive merges.
//
// Idea: a dependent dispatch costs about two microseconds. Every split adds one to a counter of
// its KV head when its results are stored; who finds that all others have done so merges them, and
// sets the counter back for the next step. Nobody waits, so nothing depends on which workgroups run
// at once. One workgroup then reads all partial results of a KV head: few splits, or small heads.
//
// What a workgroup stored must be visible to another one of the same dispatch. WGSL promises that of
// no memory but atomics, and those it orders in no way; so results travel as atomic words, with
// storageBarrier() between them and the counter. naga writes it with device scope for SPIR-V and
// HLSL; in MSL it is a fence of the threadgroup, and nothing is promised. So this variant is for a
// hint or a tuned choice, which a check has seen to work.
// import: attention/parts/attended, attention/parts/cache_only, attention/parts/softmax
// import: attention/parts/split, attention/parts/split_subgroup, format/store_four
override SPLITS: u32 = 16u;

// Splits whose results an invocation loads at once.
const AT_ONCE: u32 = 8u;

@group(0) @binding(4) var<storage, read_write> tops: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> counters: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> y: array<vec2<u32>>;

var<workgroup> arrived: u32;
var<workgroup> merged_tops: array<vec2<f32>, WG>;
var<workgroup> merged_sums: array<vec4<f32>, WG>;

fn store_top(i: u32, top: vec2<f32>) {
    atomicStore(&tops[2u * i], bitcast<u32>(top.x));
    atomicStore(&tops[2u * i + 1u], bitcast<u32>(top.y));
}

// Component c of four i: in planes, so that neighbours' words are adjacent.
fn word_of(i: u32, c: u32) -> u32 {
    let fours = HEAD_DIM / 4u;
    return (i / fours * 4u + c) * fours + i % fours;
}

fn store_sum(i: u32, sum: vec4<f32>, norm: f32) {
    let bits = bitcast<vec4<u32>>(sum);
    atomicStore(&partials[word_of(i, 0u)], bits.x);
    atomicStore(&partials[word_of(i, 1u)], bits.y);
    atomicStore(&partials[word_of(i, 2u)], bits.z);
    atomicStore(&partials[word_of(i, 3u)], bits.w);
}

fn load_sum(i: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(
        atomicLoad(&partials[word_of(i, 0u)]),
        atomicLoad(&partials[word_of(i, 1u)]),
        atomicLoad(&partials[word_of(i, 2u)]),
        atomicLoad(&partials[word_of(i, 3u)]),
    ));
}

fn load_top(i: u32) -> vec2<f32> {
    return bitcast<vec2<f32>>(
        vec2<u32>(atomicLoad(&tops[2u * i]), atomicLoad(&tops[2u * i + 1u])),
    );
}

// The results of the splits of a KV head become the output of its query heads.
fn merge(lid: u32, kv_head: u32, used: u32) {
    let fours = HEAD_DIM / 4u;
    let units = Q_PER_KV * fours;
    let wide = min(units, WG);
    let parts = WG / wide;
    let part = lid / wide;
    let first = kv_head * splits() * Q_PER_KV;
    for (var base = 0u; base < units; base += wide) {
        let unit = min(base + lid % wide, units - 1u);
        var top = vec2<f32>(LOWEST, 0.0);
        var sum = vec4<f32>(0.0);
        for (var some = 0u; some < used; some += AT_ONCE * parts) {
            var its_tops: array<vec2<f32>, AT_ONCE>;
            var its_sums: array<vec4<f32>, AT_ONCE>;
            for (var i = 0u; i < AT_ONCE; i++) {
                let split = min(some + part + i * parts, used - 1u);
                let at = first + split * Q_PER_KV + unit / fours;
                its_tops[i] = load_top(at);
                its_sums[i] = load_sum(at * fours + unit % fours);
            }
            for (var i = 0u; i < AT_ONCE; i++) {
                let live = some + part + i * parts < used;
                let its_top = select(vec2<f32>(LOWEST, 0.0), its_tops[i], live);
                let most = max(top.x, its_top.x);
                let mine = exp2(top.x - most);
                let other = select(0.0, exp2(its_top.x - most), live);
                top = vec2<f32>(most, top.y * mine + its_top.y * other);
                sum = sum * mine + its_sums[i] * other;
            }
        }
        merged_tops[lid] = top;
        merged_sums[lid] = sum;
        workgroupBarrier();
        if (lid < wide && base + lid < units) {
            for (var p = 1u; p < parts; p++) {
                let far = lid + p * wide;
                let most = max(top.x, merged_tops[far].x);
                let mine = exp2(top.x - most);
                let other = exp2(merged_tops[far].x - most);
                top = vec2<f32>(most, top.y * mine + merged_tops[far].y * other);
                sum = sum * mine + merged_sums[far] * other;
            }
            store_four(kv_head * units + unit, sum / top.y);
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(WG)
fn attend(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let split = workgroup.x % splits();
    let kv_head = workgroup.x / splits();
    if (!attend_share(SplitPart(kv_head, 0u, split), subgroup, lane, size)) { return; }
    let used = used_splits(attended());
    storageBarrier();
    if (lid == 0u) { arrived = atomicAdd(&counters[kv_head], 1u); }
    if (workgroupUniformLoad(&arrived) + 1u < used) { return; }
    storageBarrier();
    if (lid == 0u) { atomicStore(&counters[kv_head], 0u); }
    merge(lid, kv_head, used);
}
