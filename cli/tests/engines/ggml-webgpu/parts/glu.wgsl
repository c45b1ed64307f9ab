struct Params {
    offset_src0: u32, offset_src1: u32, offset_dst: u32,
    stride_src01: u32, stride_src02: u32, stride_src03: u32,
    stride_src11: u32, stride_src12: u32, stride_src13: u32,
    stride_dst1: u32, stride_dst2: u32, stride_dst3: u32,
    ne: u32, ne0: u32, ne1: u32, ne2: u32, swapped: u32, alpha: f32, limit: f32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.ne) { return; }
    let row = id.x / params.ne0;
    let c = id.x % params.ne0;
    let gate_at = select(0u, params.ne0, params.swapped == 1u);
    let gate = src0[params.offset_src0 + row * params.stride_src01 + gate_at + c];
    let up = src0[params.offset_src1 + row * params.stride_src11 + params.ne0 - gate_at + c];
    let act = activated(gate);
    dst[params.offset_dst + row * params.stride_dst1 + c] = act * up;
}
