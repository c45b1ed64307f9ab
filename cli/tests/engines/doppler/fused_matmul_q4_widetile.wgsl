// with matmul_q4, q4_k
override TILE_M: u32 = 4u;
override TILE_N: u32 = 256u;
@compute @workgroup_size(TILE_N, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let col = wg.x * TILE_N + i;
    if (col >= u.N) { return; }
    var sums = vec4f();
    let rows = min(u.M - wg.y * TILE_M, TILE_M);
    for (var k = 0u; k < u.K; k++) {
        let w = weight(col * u.num_blocks_per_row + k / 256u, k % 256u);
        for (var m = 0u; m < rows; m++) { sums[m] += A[(wg.y * TILE_M + m) * u.K + k] * w; }
    }
    for (var m = 0u; m < rows; m++) { C[(wg.y * TILE_M + m) * u.N + col] = sums[m] * u.alpha; }
}
