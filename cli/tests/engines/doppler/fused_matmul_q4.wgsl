// with matmul_q4, q4_k
override WORKGROUP_SIZE: u32 = 256u;
override COLS_PER_WG: u32 = 32u;
fn column(group: u32, i: u32) {
    let col = group * COLS_PER_WG + i;
    if (i >= COLS_PER_WG || col >= u.N) { return; }
    var sum = 0.0;
    for (var k = 0u; k < u.K; k++) {
        sum += A[k] * weight(col * u.num_blocks_per_row + k / 256u, k % 256u);
    }
    C[col] = sum * u.alpha;
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_multicol(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    column(wg.x, i);
}
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main_gemv(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    column(wg.x, i);
}
