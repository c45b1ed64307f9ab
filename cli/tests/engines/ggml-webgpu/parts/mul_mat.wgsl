struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32, m: u32, n: u32, k: u32,
    stride_01: u32, stride_11: u32, stride_02: u32, stride_12: u32, stride_03: u32, stride_13: u32,
    bs02: u32, bs03: u32, broadcast2: u32, broadcast3: u32,
}
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
