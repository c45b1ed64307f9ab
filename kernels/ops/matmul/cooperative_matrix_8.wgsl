// matmul/cooperative_matrix_8: TM x TN elements of y a workgroup on 8 x 8 matrix units, f32 sums.
//
//   y[m][Y_OFFSET + r] = sum_k f16(x[m][k]) * f16(W[r][k]) + BETA * y[m][Y_OFFSET + r]
//
// Idea: that of cooperative_matrix for adapters whose matrices are 8 x 8: Metal's simdgroups, and
// software Vulkan from Mesa 26 on, on which the shared code is checked without a GPU. Metal reads
// fragments through pointers to single elements, hence the stores of two bytes.
//
// Source: as cooperative_matrix.
// import: format/weight_eight, matmul/parts/fragments, matmul/parts/sums_to_y, matmul/parts/x_words
enable f16;
enable wgpu_cooperative_matrix;

alias FragmentA = coop_mat8x8<f16, A>;
alias FragmentB = coop_mat8x8<f16, B>;
alias FragmentC = coop_mat8x8<f32, C>;
const FRAG: u32 = 8u;

alias Unit = f16;
const UNIT: u32 = 1u;

fn stage_x(at: u32, raw: Raw) {
    let e = decode_x(raw);
    x_fragments[at] = f16(e.low.x);
    x_fragments[at + 1u] = f16(e.low.y);
    x_fragments[at + 2u] = f16(e.low.z);
    x_fragments[at + 3u] = f16(e.low.w);
    x_fragments[at + 4u] = f16(e.high.x);
    x_fragments[at + 5u] = f16(e.high.y);
    x_fragments[at + 6u] = f16(e.high.z);
    x_fragments[at + 7u] = f16(e.high.w);
}

fn stage_w(at: u32, raw: Raw, i: u32) {
    let e = decode_weights(raw, i);
    w_fragments[at] = f16(e.low.x);
    w_fragments[at + 1u] = f16(e.low.y);
    w_fragments[at + 2u] = f16(e.low.z);
    w_fragments[at + 3u] = f16(e.low.w);
    w_fragments[at + 4u] = f16(e.high.x);
    w_fragments[at + 5u] = f16(e.high.y);
    w_fragments[at + 6u] = f16(e.high.z);
    w_fragments[at + 7u] = f16(e.high.w);
}

// f16 is all there is of x.
fn multiply_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC { return c; }
