// gemv/matrix_units_split: as matrix_units, with the columns in parts.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * (h + f16(x[c][k] - h))   h: first eleven bits of x[c][k]
//   W: (ROWS, K) f16 or bf16  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)
//   partials: (SPLITS, N_VECTORS, ROWS) f32
//
// Idea: few rows are few tiles; several workgroups share the columns of each, and a second stage adds their
// sums.
// import: matmul/parts/fragments, matmul/parts/sums_to_partials, matmul/parts/units16_two
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
