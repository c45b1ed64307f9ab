@compute @workgroup_size(4)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) num: vec3<u32>,
    @builtin(local_invocation_index) i: u32,
) {
    let row = (wg.y * num.x + wg.x) * 4u + i;
    let batches = params.bs02 * params.broadcast2 * params.bs03 * params.broadcast3;
    if (row >= params.m || batches != 1u || params.n != 1u) { return; }
    var sum = 0.0;
    for (var c = 0u; c < params.k; c++) {
        sum += load(params.offset_src0 + row * params.stride_01, c) * x(params.offset_src1 + c);
    }
    dst[params.offset_dst + row] = sum;
}
