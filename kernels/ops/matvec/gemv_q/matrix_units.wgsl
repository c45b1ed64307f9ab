// gemv_q/matrix_units: many vectors at once on 16 x 16 matrix units, f32 sums.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k f16(W[r][k]) * x[c][k]    W: (ROWS, K) quantised  x: (N_VECTORS, K)
//   y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)   parts: (SPLITS, vectors, rows), in whole tiles
//
// Idea: that of gemv/matrix_units. A weight is decoded once, on its way into workgroup memory, for all
// vectors. There it is rounded to f16, as in a prompt's products, so only vectors of f16 prefer it.
//
// Source: as gemv/matrix_units.
// import: matvec/rows/soa_piece, matvec/schedule/matrix_units
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(3) var<storage, read_write> parts: array<f32>;
