// qkv_rope_append/naive: one invocation a head.
//
//   q[h] = rope(norm(qkv.q[h], q_norm))                       KV_HEADS*GROUP query heads
//   k_cache[h][position % CAPACITY] = rope(norm(qkv.k[h], k_norm));  v_cache likewise = qkv.v[h]
//   norm(h, w) = h / sqrt(mean(h^2) + EPS) * w with NORM 1, else h
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   STYLE 0: pairs (2i, 2i+1), interleaved; 1: pairs (i, i + HEAD_DIM/2), NeoX
//   qkv: [q | k | v] x HEAD_DIM  q: heads x HEAD_DIM  caches: (KV_HEADS, CAPACITY, HEAD_DIM)
//
// Idea: the formula, serially, element by element.
// uses: state
override GROUP: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override NORM: u32;
override STYLE: u32;
override EPS: f32;
override CAPACITY: u32;
override KV: u32;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<u32>;

// Element e of a query or key head, normed.
fn normed(head: u32, e: u32, scale: f32) -> f32 {
    let v = qkv[head * HEAD_DIM + e];
    if (NORM == 0u) { return v; }
    if (head < KV_HEADS * GROUP) { return v * scale * q_norm[e]; }
    return v * scale * k_norm[e];
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
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
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
