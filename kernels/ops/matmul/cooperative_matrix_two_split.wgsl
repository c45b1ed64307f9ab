// matmul/cooperative_matrix_two_split: as cooperative_matrix_split, with x as two f16.
//
//   y[m][Y_OFFSET + r] = sum_k (h + f16(x[m][k] - h)) * f16(W[r][k]) + BETA * y[m][Y_OFFSET + r]
//   h: the first eleven bits of x[m][k]
//   x: (N_TOKENS, K) f32   W: (ROWS, K) in any format of 16 bits or fewer
//   y: (N_TOKENS, Y_OFFSET + ROWS + Y_AFTER) f32
//   partials: (SPLITS, N_TOKENS, ROWS) f32
//
// Idea: that of cooperative_matrix_two for few tokens: several workgroups share the columns of a tile.
// import: matmul/parts/fragments, matmul/parts/sums_to_partials, matmul/parts/units16_two
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
