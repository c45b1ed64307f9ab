// with get_rows
@group(0) @binding(0) var<storage, read_write> src: array<f32>;
fn load(at: u32, c: u32) -> f32 { return f32(src[at + c]); }
