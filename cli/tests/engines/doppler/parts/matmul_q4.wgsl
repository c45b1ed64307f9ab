struct Uniforms {
    M: u32, N: u32, K: u32, alpha: f32, num_blocks_per_row: u32, _pad0: u32, _pad1: u32, _pad2: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> A: array<f32>;
@group(0) @binding(2) var<storage, read> B_q4k: array<u32>;
@group(0) @binding(3) var<storage, read_write> C: array<f32>;
fn word(at: u32) -> u32 { return B_q4k[at]; }
