// with glu
fn activated(x: f32) -> f32 {
    let u = sqrt(2.0 / 3.14159265) * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(-2.0 * u));
}
