// matmul/cooperative_matrix_split: as cooperative_matrix, the columns of the matrix in SPLITS parts.
//
//   y[m][Y_OFFSET + r] = sum_k f16(x[m][k]) * f16(W[r][k]) + BETA * y[m][Y_OFFSET + r]
//
// Idea: few tokens through a matrix of few rows are few tiles, and each walks all columns alone while most of
// the GPU idles. Here several workgroups share a tile, each with a part of the columns; a second stage adds
// their sums.
// import: matmul/parts/fragments, matmul/parts/sums_to_partials, matmul/parts/units16
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
