// The RMSNorm of prologue/joined's stream without its factor 1/rms, which is applied to the sums.
// import: matvec/prologue/bounded, matvec/prologue/joined
// requires: var norm_weight: array<vec4<f32>>

// The norm's weights, known before the stream is.
fn gain_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return bounded(i, norm_weight[i]);
}

// One vector for SoA rows: elements 4i..4i+4.
fn x_four(vector: u32, i: u32) -> vec4<f32> { return joined_four(i) * gain_four(i); }

fn squares_of(i: u32) -> f32 {
    let v = joined_four(i);
    return dot(v, v);
}

// The stream alone, for schedule/pipelined.
fn raw_four(i: u32) -> vec4<f32> { return joined_four(i); }
