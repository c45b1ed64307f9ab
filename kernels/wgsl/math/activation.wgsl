// ACT_SILU: SiLU(g) = g / (1 + exp(-g)). ACT_GELU_TANH: GELU, tanh form (Hendrycks and Gimpel, arXiv
// 1606.08415): 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). Arguments are clamped where the
// result no longer changes in f32, or 87, below which e^-g stays within 2^126, where divisions are
// exact to a few units: exp cannot overflow.
override ACTIVATION: u32;

fn activate(g: f32) -> f32 {
    if (ACTIVATION == ACT_SILU) { return g / (1.0 + exp(min(-g, 87.0))); }
    let u = clamp(0.7978845608 * (g + 0.044715 * g * g * g), -15.0, 15.0);
    // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), without the cancellation near tanh u = -1.
    return g / (1.0 + exp(-2.0 * u));
}
