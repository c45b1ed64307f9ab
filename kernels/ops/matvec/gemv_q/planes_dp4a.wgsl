// gemv_q/planes_dp4a: 8-bit activations, four products an instruction.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])
//   d = max |x| of 32 / 127, xq = round(x / d)
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//
// Idea: against 8-bit activations quants stay integers: dot4I8Packed takes four at a time, and x
// meets a chunk with 32 bytes instead of 128. Every workgroup rounds x into its own memory while
// its first weights are on their way. The rounding costs about 5e-3 of the activations' size (an
// NMSE near 3e-5), so this one has a tolerance of its own and runs only when a hint asks for it.
// Source: ggml's q8_1 products (mmvq).
// import: matvec/epilogue/soa_int8, matvec/prologue/plain, matvec/prologue/unscaled
const BYTES: u32 = 1u;
const LARGEST: f32 = 127.0;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
