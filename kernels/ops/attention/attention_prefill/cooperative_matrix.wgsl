// attention_prefill/cooperative_matrix: blocks of query rows, tiles of 32 keys, 16 x 16 matrix units.
//
// Idea: flash's two products on matrix units. A subgroup has 32 rows and 64 columns of the heads: it keeps
// these of the queries and of the sums in registers, multiplies the queries with as many columns of the keys
// and leaves scores in workgroup memory, where a row's columns are added. Weights are made there too, rounded
// to f16, and multiply the values. A fragment cannot be scaled row by row where it is: so weights are
// relative to a reference that follows the largest score only when it is left 8 behind, and then the sums go
// through workgroup memory once. Scores and sums are f32; queries, keys, values and weights f16.
//
// Source: FlashAttention (Dao et al., arXiv 2205.14135); SPV_KHR_cooperative_matrix.
// import: attention/parts/prefill_cooperative, attention/parts/prefill_whole
enable f16;
enable wgpu_cooperative_matrix;
