// For planes_dot4: the factor of an RMSNorm whose squares round_x has summed.
fn factor_of(size: u32) -> f32 {
    if (!has_norm()) { return 1.0; }
    return rms_factor(all_squares(size));
}
