// The factor of a head's RMSNorm, from the sum of its squares.
fn head_scale(squares: f32) -> f32 { return inverseSqrt(squares / f32(HEAD_DIM) + EPS); }
