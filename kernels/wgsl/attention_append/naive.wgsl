// attention_append/naive: three dispatches, one invocation a head, a score, two elements of y.
//
//   q, k, v = heads of qkv; q[h] = rope(norm(q[h])), k[g] = rope(norm(k[g]))       g = h / GROUP
//   K[g][position % CAPACITY] = k[g];  V likewise = v[g]
//   y[h] = sum_t softmax_t(SCALE * q[h] . K[g][t]) * V[g][t]
//   norm(h) = h / sqrt(mean(h^2) + EPS) * w with NORM 1, else h; qk_norm: w of q, then w of k
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   STYLE 0: pairs (2i, 2i+1), interleaved; 1: pairs (i, i + HEAD_DIM/2), NeoX
//   qkv: [q | k | v] x HEAD_DIM f32   y: (heads, HEAD_DIM) f32 or f16   caches: (KV_HEADS, CAPACITY, HEAD_DIM)
//   t runs over min(position + 1, CAPACITY) slots; a ring needs no order, softmax has none
//
// Idea: the formula: heads into q and the caches, scores (heads, CAPACITY), then the mix, all through
// device memory.
// uses: state, kv_scalar, acts_pair, grid
override GROUP: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override NORM: u32;
override STYLE: u32;
override EPS: f32;
override CAPACITY: u32;
override SCALE: f32;
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

// Element e of a query or key head, normed.
fn normed(head: u32, e: u32, scale: f32) -> f32 {
    let v = qkv[head * HEAD_DIM + e];
    if (NORM == 0u) { return v; }
    if (head < KV_HEADS * GROUP) { return v * scale * qk_norm[e]; }
    return v * scale * qk_norm[HEAD_DIM + e];
}

// Element e of a query or key head, normed and turned.
fn turned(head: u32, e: u32, scale: f32) -> f32 {
    let half = HEAD_DIM / 2u;
    let pair = select(e % half, e / 2u, STYLE == 0u);
    let first = select(e < half, e % 2u == 0u, STYLE == 0u);
    let i = select(pair, 2u * pair, STYLE == 0u);
    let j = select(pair + half, 2u * pair + 1u, STYLE == 0u);
    let turn = rope[state[POSITION] * half + pair];
    let a = normed(head, i, scale);
    let b = normed(head, j, scale);
    return select(a * turn.y + b * turn.x, a * turn.x - b * turn.y, first);
}

@compute @workgroup_size(1)
fn append(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let head = workgroup.x;
    var scale = 1.0;
    if (NORM == 1u) {
        var sum = 0.0;
        for (var e = 0u; e < HEAD_DIM; e++) {
            sum += qkv[head * HEAD_DIM + e] * qkv[head * HEAD_DIM + e];
        }
        scale = inverseSqrt(sum / f32(HEAD_DIM) + EPS);
    }
    let keys = KV_HEADS * GROUP;
    let values = keys + KV_HEADS;
    let slot = state[POSITION] % CAPACITY;
    for (var e = 0u; e < HEAD_DIM; e += 2u) {
        var v = vec2<f32>(qkv[head * HEAD_DIM + e], qkv[head * HEAD_DIM + e + 1u]);
        if (head < values) { v = vec2<f32>(turned(head, e, scale), turned(head, e + 1u, scale)); }
        if (head < keys) {
            q[head * HEAD_DIM + e] = v.x;
            q[head * HEAD_DIM + e + 1u] = v.y;
            continue;
        }
        let row = ((head - select(keys, values, head >= values)) * CAPACITY + slot) * HEAD_DIM;
        if (KV == 1u) {
            let word = pack2x16float(v);
            if (head < values) { k_cache[(row + e) / 2u] = word; } else { v_cache[(row + e) / 2u] = word; }
        } else if (head < values) {
            k_cache[row + e] = bitcast<u32>(v.x);
            k_cache[row + e + 1u] = bitcast<u32>(v.y);
        } else {
            v_cache[row + e] = bitcast<u32>(v.x);
            v_cache[row + e + 1u] = bitcast<u32>(v.y);
        }
    }
}

fn slots() -> u32 { return min(state[POSITION] + 1u, CAPACITY); }

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    let head = i / CAPACITY;
    let t = i % CAPACITY;
    if (head >= KV_HEADS * GROUP || t >= slots()) { return; }
    let k = ((head / GROUP) * CAPACITY + t) * HEAD_DIM;
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += q[head * HEAD_DIM + d] * k_at(k + d); }
    scores[i] = SCALE * sum;
}

// Element i of the output.
fn mixed(i: u32) -> f32 {
    let head = i / HEAD_DIM;
    let n = slots();
    var most = scores[head * CAPACITY];
    for (var t = 1u; t < n; t++) { most = max(most, scores[head * CAPACITY + t]); }
    let v = (head / GROUP) * CAPACITY * HEAD_DIM + i % HEAD_DIM;
    var norm = 0.0;
    var sum = 0.0;
    for (var t = 0u; t < n; t++) {
        let p = exp(scores[head * CAPACITY + t] - most);
        norm += p;
        sum += p * v_at(v + t * HEAD_DIM);
    }
    return sum / norm;
}

@compute @workgroup_size(WG)
fn mix(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Two elements an invocation: f16 shares words.
    let i = 2u * (group_index(workgroup, groups) * WG + lid);
    let elements = KV_HEADS * GROUP * HEAD_DIM;
    if (i >= elements) { return; }
    let both = i + 1u < elements;
    var second = 0.0;
    if (both) { second = mixed(i + 1u); }
    store_pair(i, vec2<f32>(mixed(i), second), both);
}
