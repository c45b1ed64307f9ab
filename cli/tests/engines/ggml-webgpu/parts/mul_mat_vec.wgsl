@group(0) @binding(1) var<storage, read_write> src1: array<f32>;
fn x(at: u32) -> f32 { return src1[at]; }
