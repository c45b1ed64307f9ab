// The norm of query and key heads, element by element. Queries come first in qkv, then keys, then values.
// norm_at(query, e) is element e of a query's or a key's norm weights.
// qkv_element(head, e) is element e of a head, with its bias.
// requires: fn qkv_element(head: u32, e: u32) -> f32
// requires: fn norm_at(query: bool, e: u32) -> f32
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override QK_NORM: u32;
override EPS: f32;

// The norm's weight of element e; one without a norm.
fn head_norm_weight(head: u32, e: u32) -> f32 {
    if (QK_NORM == NORM_NONE) { return 1.0; }
    return norm_at(head < KV_HEADS * Q_PER_KV, e);
}

// Squares of every `step`-th element of a head.
fn head_squares(head: u32, first: u32, step: u32) -> f32 {
    var sum = 0.0;
    for (var e = first; e < HEAD_DIM; e += step) {
        sum += qkv_element(head, e) * qkv_element(head, e);
    }
    return sum;
}

