struct Params {
    offset_src: u32, offset_idx: u32, offset_dst: u32,
    stride_src1: u32, stride_src2: u32, stride_src3: u32,
    stride_idx0: u32, stride_idx1: u32, stride_idx2: u32,
    stride_dst1: u32, stride_dst2: u32, stride_dst3: u32,
    ne0: u32, n_rows: u32, ne2: u32, ne3: u32, idx1: u32, idx2: u32,
}
@group(0) @binding(1) var<storage, read_write> idx: array<i32>;
@group(0) @binding(2) var<storage, read_write> dst: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.n_rows * params.ne2 * params.ne3) { return; }
    let token = u32(idx[params.offset_idx + id.x * params.stride_idx0]);
    for (var c = 0u; c < params.ne0; c++) {
        let value = load(params.offset_src + token * params.stride_src1, c);
        dst[params.offset_dst + id.x * params.stride_dst1 + c] = value;
    }
}
