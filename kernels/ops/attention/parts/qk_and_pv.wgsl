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

// The score of a head for slot t, past the last slot the last one's again.
fn score_of(head: u32, t: u32) -> f32 { return scores[head * KV_SIZE + min(t, cache_slots() - 1u)]; }

// The sum of the weights of some slots, and of their values times these.
struct Weighed { norm: f32, sum: f32 }

// With slot t, whose value is element v of the cache.
fn and_slot(before: Weighed, head: u32, t: u32, most: f32, v: u32) -> Weighed {
    if (t >= cache_slots()) { return before; }
    let p = exp(score_of(head, t) - most);
    return Weighed(before.norm + p, before.sum + p * v_at(v + t * HEAD_DIM));
}

// Element i of the output. Four slots a round: llvmpipe ends an invocation's loops after 65535 rounds.
fn pv_element(i: u32) -> f32 {
    let head = i / HEAD_DIM;
    let n = cache_slots();
    var most = score_of(head, 0u);
    for (var t = 0u; t < n; t += 4u) {
        most = max(most, max(score_of(head, t), score_of(head, t + 1u)));
        most = max(most, max(score_of(head, t + 2u), score_of(head, t + 3u)));
    }
    let v = (head / Q_PER_KV) * KV_SIZE * HEAD_DIM + i % HEAD_DIM;
    var all = Weighed(0.0, 0.0);
    for (var t = 0u; t < n; t += 4u) {
        all = and_slot(all, head, t, most, v);
        all = and_slot(all, head, t + 1u, most, v);
        all = and_slot(all, head, t + 2u, most, v);
        all = and_slot(all, head, t + 3u, most, v);
    }
    return all.sum / all.norm;
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
