// gemv/matrix_units: several vectors at once on 16 x 16 matrix units, as two f16.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * (h + f16(x[c][k] - h))   h: first eleven bits of x[c][k]
//   W: (ROWS, K) f16 or bf16  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)
//
// Idea: eight vectors are eight multiply-adds a weight, as long as the weight takes to arrive; matrix units
// make them in passing. Exact activations are two f16 each, eleven bits and what they leave (see
// matmul/cooperative_matrix_two), so the rows of a fragment that no vector fills cost nothing either.
// Magnitudes of x stay below 65504.
// import: matmul/parts/fragments, matmul/parts/sums_to_y, matmul/parts/units16_two
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
