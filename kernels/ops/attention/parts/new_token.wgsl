// For split decode attention that makes the new token's heads itself. A workgroup makes HEADS queries of a KV
// head. If its split has the new token's slot, it also makes the key and the value and attends to them in
// workgroup memory; of the workgroups that do, the one with the first queries stores them in the cache. No
// workgroup uses what the cache holds there. `qk_norm` has the weights for queries, those for
// keys, then the bias of the heads, if they have one.
// import: attention/parts/attended, attention/parts/invocation, attention/parts/split, kv/chunk
// import: kv/quants, kv/vector, rope/heads
// requires: override WG: u32
// requires: var k_cache, v_cache: array<vec4<u32>>
// requires: var qk_norm: array<vec2<f32>>
// requires: var state: array<u32>
// requires: fn head_chunks() -> u32
// requires: fn make_heads(part: SplitPart, count: u32, position: u32, at: Invocation, size: u32)
// requires: fn split_of(slot: u32, n: u32) -> u32
const APPENDS: bool = true;

// HEADS queries, the key, the value; normed and rotated, f32 pairs.
override NEW_HEAD_PAIRS: u32 = (HEADS + 2u) * HEAD_DIM / 2u;
var<workgroup> new_heads: array<vec2<f32>, NEW_HEAD_PAIRS>;
// With q8_0 the largest magnitude of each block of the key, then of the value.
override NEW_BLOCKS: u32 = (HEAD_DIM + 31u) / 32u * 2u;
var<workgroup> new_largest: array<f32, NEW_BLOCKS>;
// Slot of the new token in the workgroup that attends to it, else none.
var<private> own_slot: u32;

fn bias_pair(at: u32) -> vec2<f32> { return qk_norm[HEAD_DIM + at]; }

fn norm_pair(query: bool, at: u32) -> vec2<f32> {
    return qk_norm[select(HEAD_DIM / 2u, 0u, query) + at];
}

// Heads of a sequence in qkv.
fn qkv_heads() -> u32 { return KV_HEADS * (Q_PER_KV + 2u); }

// The head of qkv, whose rows are sequences, that is head j of the workgroup.
fn head_of(part: SplitPart, j: u32) -> u32 {
    let own = part.kv_head % KV_HEADS;
    let row = part.kv_head / KV_HEADS * qkv_heads();
    if (j < HEADS) { return row + own * Q_PER_KV + part.first + j; }
    return row + KV_HEADS * (Q_PER_KV + j - HEADS) + own;
}

// What quad i of a head is made of: its elements, their norm weights, the rotations.
struct QuadParts { v: Quad, w: Quad, t: vec4<f32> }

fn load_quad_parts(head: u32, i: u32, position: u32) -> QuadParts {
    let own = head % qkv_heads();
    return QuadParts(load_quad(head, i), norm_quad(own, i), rotations(own, i, position));
}

// Makes quad i of head j of the workgroup, which is head `head` of qkv.
fn make_quad(j: u32, head: u32, i: u32, p: QuadParts, scale: f32) {
    var v = p.v;
    if (!is_value(head % qkv_heads())) {
        v = rotated_quad(Quad(v.low * scale * p.w.low, v.high * scale * p.w.high), p.t);
    }
    new_heads[j * (HEAD_DIM / 2u) + low_at(i)] = v.low;
    new_heads[j * (HEAD_DIM / 2u) + high_at(i)] = v.high;
}

// Makes the heads; false where the split has no slot yet.
fn ready(part: SplitPart, at: Invocation, size: u32) -> bool {
    let n = attended();
    let has_slots = part.split < used_splits(n);
    if (has_slots) {
        let position = state[POSITION];
        let slot = position % KV_SIZE;
        let appends = split_of(slot, n) == part.split;
        make_heads(part, select(HEADS, HEADS + 2u, appends), position, at, size);
        workgroupBarrier();
        own_slot = select(0xffffffffu, slot, appends);
        if (KV_FORMAT == KV_Q8_0) {
            // A workgroup without the slot makes them too, and does not use them.
            for (var i = at.index; i < NEW_BLOCKS; i += WG) { new_largest[i] = largest_in_block(i); }
            workgroupBarrier();
        }
        if (appends && part.first == 0u) {
            let vector = (part.kv_head * KV_SIZE + slot) * vector_chunks();
            for (var e = at.index; e < vector_chunks(); e += WG) {
                k_cache[vector + e] = new_element(0u, e);
                v_cache[vector + e] = new_element(1u, e);
            }
        }
    }
    return has_slots;
}

fn query_four(part: SplitPart, h: u32, four: u32) -> vec4<f32> {
    let at = h * (HEAD_DIM / 2u) + 2u * four;
    return vec4<f32>(new_heads[at], new_heads[at + 1u]);
}

fn new_slot() -> u32 { return own_slot; }

// Chunk c of the new token's key (row 0) or value (1), as lanes load it.
fn new_chunk(row: u32, c: u32) -> vec4<u32> {
    let at = (HEADS + row) * (HEAD_DIM / 2u) + c * 2u * chunk_fours();
    if (KV_FORMAT == KV_F32) { return bitcast<vec4<u32>>(vec4<f32>(new_heads[at], new_heads[at + 1u])); }
    if (KV_FORMAT == KV_Q8_0) {
        let most = new_largest[row * (NEW_BLOCKS / 2u) + c / 4u];
        return vec4<u32>(
            quants_word(vec4<f32>(new_heads[at], new_heads[at + 1u]), most),
            quants_word(vec4<f32>(new_heads[at + 2u], new_heads[at + 3u]), most),
            bitcast<u32>(unpack2x16float(scales_word(vec2<f32>(most, 0.0))).x),
            0u,
        );
    }
    return vec4<u32>(
        pack2x16float(new_heads[at]), pack2x16float(new_heads[at + 1u]),
        pack2x16float(new_heads[at + 2u]), pack2x16float(new_heads[at + 3u]),
    );
}

// Element e of that key or value, as the cache holds it. An invocation stores whole elements: a
// store of a part of a vec4 may rewrite all of it.
fn new_element(row: u32, e: u32) -> vec4<u32> {
    if (KV_FORMAT != KV_Q8_0) { return new_chunk(row, e); }
    let quants = value_words() / 4u;
    if (e >= quants) {
        let w = 4u * (e - quants);
        return vec4<u32>(
            new_scales(row, w), new_scales(row, w + 1u), new_scales(row, w + 2u), new_scales(row, w + 3u),
        );
    }
    var second = vec2<u32>(0u);
    if (2u * e + 1u < head_chunks()) { second = new_chunk(row, 2u * e + 1u).xy; }
    return vec4<u32>(new_chunk(row, 2u * e).xy, second);
}

// The scales of blocks 2w and 2w + 1; zeros behind the last.
fn new_scales(row: u32, w: u32) -> u32 {
    let blocks = NEW_BLOCKS / 2u;
    var most = vec2<f32>(0.0);
    if (2u * w < blocks) { most.x = new_largest[row * blocks + 2u * w]; }
    if (2u * w + 1u < blocks) { most.y = new_largest[row * blocks + 2u * w + 1u]; }
    return scales_word(most);
}

// The largest magnitude of a block: those of the key come first, then those of the value.
fn largest_in_block(i: u32) -> f32 {
    let block = i % (NEW_BLOCKS / 2u);
    let head = (HEADS + i / (NEW_BLOCKS / 2u)) * (HEAD_DIM / 2u);
    var most = 0.0;
    for (var e = block * KV_BLOCK / 2u; e < min((block + 1u) * KV_BLOCK, HEAD_DIM) / 2u; e++) {
        most = larger_magnitude(larger_magnitude(most, new_heads[head + e].x), new_heads[head + e].y);
    }
    return most;
}
