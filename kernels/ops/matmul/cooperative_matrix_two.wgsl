// matmul/cooperative_matrix_two: as cooperative_matrix, with x as two f16.
//
//   y[m][Y_OFFSET + r] = sum_k (h + f16(x[m][k] - h)) * f16(W[r][k]) + BETA * y[m][Y_OFFSET + r]
//   h: the first eleven bits of x[m][k]
//   x: (N_TOKENS, K) f32   W: (ROWS, K) in any format of 16 bits or fewer
//   y: (N_TOKENS, Y_OFFSET + ROWS + Y_AFTER) f32
//
// Idea: f16 keeps 11 of the 24 bits of an activation. What is left of it, rounded to another, makes 21, and
// each fragment of W meets both: twice the products, the same loads from memory. Where memory is what a
// product waits for, as with few tokens, exact activations cost nothing.
//
// Source: Markidis et al., *NVIDIA Tensor Core Programmability, Performance & Precision*, IPDPSW 2018,
// arXiv:1803.04014.
// import: matmul/parts/fragments, matmul/parts/sums_to_y, matmul/parts/units16_two
enable f16;
enable wgpu_cooperative_matrix;
