// Attention in two dispatches, all scores in device memory.
// import: format/store_pair, kv/scalar
// requires: override KV_SIZE, Q_PER_KV, HEAD_DIM, KV_HEADS: u32
// requires: var q, scores: array<f32>
// requires: var state: array<u32>
override SCALE: f32;
override SEQUENCES: u32 = 1u; // whose heads lie one after the other

fn cache_slots() -> u32 { return min(state[POSITION] + 1u, KV_SIZE); }

// Score i of (heads, KV_SIZE).
fn store_score(i: u32) {
    let head = i / KV_SIZE;
    let t = i % KV_SIZE;
    if (head >= SEQUENCES * KV_HEADS * Q_PER_KV || t >= cache_slots()) { return; }
    let k = ((head / Q_PER_KV) * KV_SIZE + t) * HEAD_DIM;
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += q[head * HEAD_DIM + d] * k_at(k + d); }
    scores[i] = SCALE * sum;
}

// Element i of the output.
fn pv_element(i: u32) -> f32 {
    let head = i / HEAD_DIM;
    let n = cache_slots();
    var most = scores[head * KV_SIZE];
    for (var t = 1u; t < n; t++) { most = max(most, scores[head * KV_SIZE + t]); }
    let v = (head / Q_PER_KV) * KV_SIZE * HEAD_DIM + i % HEAD_DIM;
    var norm = 0.0;
    var sum = 0.0;
    for (var t = 0u; t < n; t++) {
        let p = exp(scores[head * KV_SIZE + t] - most);
        norm += p;
        sum += p * v_at(v + t * HEAD_DIM);
    }
    return sum / norm;
}

// Elements i and i + 1 of the output: in f16 they share a word.
fn store_output_pair(i: u32) {
    let elements = SEQUENCES * KV_HEADS * Q_PER_KV * HEAD_DIM;
    if (i >= elements) { return; }
    let both = i + 1u < elements;
    var second = 0.0;
    if (both) { second = pv_element(i + 1u); }
    store_pair(i, vec2<f32>(pv_element(i), second), both);
}
