// gemv_q/planes_dp4a24: activations as integers of 23 bits, four thirds of products an instruction.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])
//   d = max |x| of 32 / 4161400, xq = round(x / d)
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//
// Idea: as planes_dp4a16 with one byte more: xq = 65536 t + 256 h + l. Three dot4I8Packed take four
// weights, three quarters of an instruction a weight and a third to unpack, where a float takes three;
// and an activation is off by at most 2^-23 of the largest of its 32, about what adding f32 products
// rounds away. So it has the bounds of the kernel, and none of its own.
// Source: own.
// import: matvec/epilogue/soa_int8, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
