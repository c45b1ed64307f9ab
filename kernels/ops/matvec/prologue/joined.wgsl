// The residual stream x after a branch joined it, x + delta / rms(delta) * post_weight, in workgroup memory.
// Every workgroup makes all of it, and the workgroups of a dispatch share its writing: others still read x,
// so it goes to next_x.
//
//   whole_sum(at, size, value)   the sum of all invocations' values
// import: matvec/prologue/bounded
// requires: fn whole_sum(at: u32, size: u32, value: f32) -> f32
// requires: override K, WG: u32
// requires: var delta, post_weight, x: array<vec4<f32>>
// requires: var next_x: array<f32>
override EPS: f32;
override JOINED_FOURS: u32 = (K + 3u) / 4u;

var<workgroup> joined_fours: array<vec4<f32>, JOINED_FOURS>;

// Fours of elements that an invocation keeps in registers during the sum; those of a longer vector are read
// again.
const MOST_JOINED: u32 = 4u;

fn has_norm() -> bool { return true; }

fn rms_factor(squares: f32) -> f32 { return inverseSqrt(squares / f32(K) + EPS); }

fn weighted_branch(i: u32) -> vec4<f32> { return bounded(i, delta[i]) * bounded(i, post_weight[i]); }

fn write_stream(i: u32, v: vec4<f32>) {
    for (var e = 0u; e < 4u; e++) {
        if (4u * i + e < K) { next_x[4u * i + e] = v[e]; }
    }
}

// Makes the stream. All invocations of the workgroup come here, once, `at` of them below WG in subgroups of
// `size`; the workgroup is number `group` of `groups`.
fn ready_x(at: u32, size: u32, group: u32, groups: u32) {
    let rounds = (JOINED_FOURS + WG - 1u) / WG;
    var branches: array<vec4<f32>, MOST_JOINED>;
    var streams: array<vec4<f32>, MOST_JOINED>;
    var squares = 0.0;
    // Whatever can be loaded is, before the sum makes everyone wait.
    for (var j = 0u; j < rounds; j++) {
        let i = j * WG + at;
        if (i < JOINED_FOURS) {
            let d = bounded(i, delta[i]);
            squares += dot(d, d);
            if (j < MOST_JOINED) {
                branches[j] = weighted_branch(i);
                streams[j] = bounded(i, x[i]);
            }
        }
    }
    let factor = rms_factor(whole_sum(at, size, squares));
    let slice = (JOINED_FOURS - 1u) / groups + 1u;
    for (var j = 0u; j < rounds; j++) {
        let i = j * WG + at;
        if (i < JOINED_FOURS) {
            var v = vec4<f32>(0.0);
            if (j < MOST_JOINED) {
                v = streams[j] + factor * branches[j];
            } else {
                v = bounded(i, x[i]) + factor * weighted_branch(i);
            }
            joined_fours[i] = v;
            if (i / slice == group) { write_stream(i, v); }
        }
    }
    workgroupBarrier();
}

// Elements 4i..4i+4 of it, zeros past its end.
fn joined_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return joined_fours[i];
}
