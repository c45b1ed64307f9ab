enable f16;
struct q8_1 { d: f16, s: f16, qs: array<u32, 8> }
@group(0) @binding(1) var<storage, read_write> src1q: array<q8_1>;
fn x(c: u32) -> f32 {
    let block = src1q[c / 32u];
    let byte = (block.qs[c % 32u / 4u] >> (8u * (c % 4u))) & 255u;
    return f32(block.d) * f32(i32(byte << 24u) >> 24u);
}
