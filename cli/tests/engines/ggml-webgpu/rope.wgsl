struct Params {
    offset_src0: u32, offset_src1: u32, offset_src2: u32, offset_dst: u32,
    stride_src01: u32, stride_src02: u32, stride_src03: u32,
    stride_dst1: u32, stride_dst2: u32, stride_dst3: u32,
    n_threads: u32, ne0: u32, ne1: u32, ne2: u32, n_dims: u32, mode: u32,
    theta_scale: f32, attn_factor: f32, freq_scale: f32, ext_factor: f32,
    corr_dim0: f32, corr_dim1: f32,
    sections0: u32, sections1: u32, sections2: u32, sections3: u32, n_offs: u32,
}
@group(0) @binding(0) var<storage, read_write> src0: array<f32>;
@group(0) @binding(1) var<storage, read_write> src1: array<i32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.n_threads) { return; }
    let row = params.offset_src0 + id.x * 2u / params.ne0 * params.stride_src01;
    let i = id.x % (params.ne0 / 2u);
    let neox = params.mode == 2u;
    let first = row + select(2u * i, i, neox);
    let second = first + select(1u, params.n_dims / 2u, neox);
    let theta = f32(src1[params.offset_src1]) * pow(params.theta_scale, f32(i)) * params.freq_scale;
    let ab = vec2(src0[first], src0[second]);
    src0[first] = params.attn_factor * (ab.x * cos(theta) - ab.y * sin(theta));
    src0[second] = params.attn_factor * (ab.x * sin(theta) + ab.y * cos(theta));
}
