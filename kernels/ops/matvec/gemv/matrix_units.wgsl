// gemv/matrix_units: many vectors at once on 16 x 16 matrix units, f32 sums.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k f16(W[r][k]) * x[c][k]    W: (ROWS, K) of 16 bits  x: (N_VECTORS, K)
//   y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)   parts: (SPLITS, vectors, rows), in whole tiles
//
// Idea: sums of more than eight vectors leave the registers of rows8_vectors, which reads the weights again.
// A subgroup's matrix units multiply sixteen vectors with sixteen rows in one operation, so that up to 64
// vectors cost what the weights cost. Vectors in f32 are two f16, the first eleven bits and the rest:
// weights of 16 bits and activations stay what they are.
//
// Source: SPV_KHR_cooperative_matrix; Markidis et al., *NVIDIA Tensor Core Programmability, Performance &
// Precision*, IPDPSW 2018, arXiv:1803.04014.
// import: matvec/rows/dense_piece, matvec/schedule/matrix_units
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(3) var<storage, read_write> parts: array<f32>;
