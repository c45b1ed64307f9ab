// norm_at for weights in two buffers, q_norm and k_norm.
// requires: var k_norm, q_norm: array<f32>

fn norm_at(query: bool, e: u32) -> f32 {
    if (query) { return q_norm[e]; }
    return k_norm[e];
}
