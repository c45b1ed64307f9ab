// One workgroup takes a branch into the residual stream and norms the stream for what follows.
// `delta_at` reads the branch. NormLane has the invocation's `lid`, and what else `sum_all` needs.
// import: format/store_pair
// requires: type NormLane
// requires: override N, WG: u32
// requires: var next_weight, post_weight: array<f32>
// requires: fn delta_at(i: u32) -> f32
// requires: fn set_stream(i: u32, value: f32)
// requires: fn stream_at(i: u32) -> f32
// requires: fn sum_all(p: NormLane, value: f32) -> f32
override EPS: f32;
override WEIGHT_OFFSET: u32; // OFFSET_STANDARD or OFFSET_GEMMA (1 + w)
override POST_NORM: u32; // NORM_RMS: the branch is normed first

// Pairs of elements that an invocation keeps in registers between the sums. Those of a longer
// vector are read again.
const KEPT: u32 = 4u;

// Where the row at hand begins in y; the accessors of a variant with several rows add it too.
var<private> norm_base: u32 = 0u;

fn delta_pair(at: u32) -> vec2<f32> {
    if (at + 1u < N) { return vec2<f32>(delta_at(at), delta_at(at + 1u)); }
    if (at < N) { return vec2<f32>(delta_at(at), 0.0); }
    return vec2<f32>(0.0);
}

fn stream_pair(at: u32) -> vec2<f32> {
    if (at + 1u < N) { return vec2<f32>(stream_at(at), stream_at(at + 1u)); }
    if (at < N) { return vec2<f32>(stream_at(at), 0.0); }
    return vec2<f32>(0.0);
}

fn post_pair(at: u32) -> vec2<f32> {
    let o = f32(WEIGHT_OFFSET);
    if (POST_NORM == NORM_NONE) { return vec2<f32>(1.0); }
    if (at + 1u < N) { return vec2<f32>(o + post_weight[at], o + post_weight[at + 1u]); }
    if (at < N) { return vec2<f32>(o + post_weight[at], 0.0); }
    return vec2<f32>(0.0);
}

fn next_pair(at: u32) -> vec2<f32> {
    let o = f32(WEIGHT_OFFSET);
    if (at + 1u < N) { return vec2<f32>(o + next_weight[at], o + next_weight[at + 1u]); }
    if (at < N) { return vec2<f32>(o + next_weight[at], 0.0); }
    return vec2<f32>(0.0);
}

// stream += delta or rms_norm(delta) * post_weight; then, if `next`, y = rms_norm(stream) *
// next_weight.
fn residual_norm(p: NormLane, next: bool) {
    let rounds = (N + 2u * WG - 1u) / (2u * WG);
    var deltas: array<vec2<f32>, KEPT>;
    var xs: array<vec2<f32>, KEPT>;
    var posts: array<vec2<f32>, KEPT>;
    var nexts: array<vec2<f32>, KEPT>;
    var squares = 0.0;
    // Whatever can be loaded is, before the first sum makes everyone wait.
    for (var j = 0u; j < rounds; j++) {
        let at = 2u * (j * WG + p.lid);
        let d = delta_pair(at);
        squares += dot(d, d);
        if (j < KEPT) {
            deltas[j] = d;
            xs[j] = stream_pair(at);
            posts[j] = post_pair(at);
            if (next) { nexts[j] = next_pair(at); }
        }
    }
    var scale = 1.0;
    if (POST_NORM == NORM_RMS) { scale = inverseSqrt(sum_all(p, squares) / f32(N) + EPS); }
    squares = 0.0;
    for (var j = 0u; j < rounds; j++) {
        let at = 2u * (j * WG + p.lid);
        var v = vec2<f32>(0.0);
        if (j < KEPT) {
            v = xs[j] + deltas[j] * scale * posts[j];
            xs[j] = v;
        } else {
            v = stream_pair(at) + delta_pair(at) * scale * post_pair(at);
        }
        if (at < N) { set_stream(at, v.x); }
        if (at + 1u < N) { set_stream(at + 1u, v.y); }
        squares += dot(v, v);
    }
    if (!next) { return; }
    scale = inverseSqrt(sum_all(p, squares) / f32(N) + EPS);
    for (var j = 0u; j < rounds; j++) {
        let at = 2u * (j * WG + p.lid);
        var v = vec2<f32>(0.0);
        if (j < KEPT) {
            v = xs[j] * scale * nexts[j];
        } else {
            v = stream_pair(at) * scale * next_pair(at);
        }
        if (at < N) { store_pair(norm_base + at, v, at + 1u < N); }
    }
}
