// The factor of a head's RMSNorm, from the sum of its squares.
// requires: override EPS: f32
// requires: override HEAD_DIM: u32

fn head_scale(squares: f32) -> f32 { return inverseSqrt(squares / f32(HEAD_DIM) + EPS); }
