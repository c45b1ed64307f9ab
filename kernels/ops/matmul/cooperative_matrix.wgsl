// matmul/cooperative_matrix: TM x TN elements of y a workgroup on 16 x 16 matrix units, f32 sums.
//
//   y[m][Y_OFFSET + r] = sum_k f16(x[m][k]) * f16(W[r][k]) + BETA * y[m][Y_OFFSET + r]
//
// Idea: a subgroup multiplies 16 x 16 matrices of f16 in one operation, many times what its lanes
// do. x and W are rounded to f16 on their way into workgroup memory (weights of f16 and bf16 and
// activations of f16 are exact there; magnitudes stay below 65504), each subgroup reads fragments
// of FM x 16 rows and FN x 16 columns from there and keeps FM x FN sums in registers. The next
// tile's loads are in flight while the last one is multiplied. Rows are padded by 16 bytes, which
// spreads eight of them over all banks. Tiles beyond N_TOKENS, ROWS or K are zero; where a tile of y is
// not whole, or its rows do not begin on 16 bytes, sums go through workgroup memory.
//
// Source: SPV_KHR_cooperative_matrix; the staging is that of register_tiled.
// import: matmul/parts/fragments, matmul/parts/sums_to_y, matmul/parts/units16
enable f16;
enable wgpu_cooperative_matrix;
