// The factor of an RMSNorm whose squares round_x has summed, for schedule/soa_int8.
// import: matvec/prologue/int8_digits
// requires: fn has_norm() -> bool
// requires: fn rms_factor(squares: f32) -> f32

fn factor_of(size: u32) -> f32 {
    if (!has_norm()) { return 1.0; }
    return rms_factor(all_squares(size));
}
