// gemv_q/planes_dp4a16: 16-bit activations, four half products an instruction.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])
//   d = max |x| of 32 / 32639, xq = round(x / d)
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//
// Idea: as planes_dp4a, with integers of sixteen bits in two signed bytes, xq = 256 h + l: two
// dot4I8Packed take four weights, one with h and one with l, and the sums join once a chunk. A
// weight so costs half an instruction plus a third to unpack, where a float takes three. The
// rounding costs 2e-5 of the activations' size (an NMSE near 4e-10), 257 times less than with
// eight bits; in every layer of a decode it adds up to 3e-8, so it takes a hint. 32639 = 256 * 127 + 127
// keeps h and l within a signed byte. Workgroups take rows in several grid-stride iterations and round x
// once.
// Source: own; integers per 32 activations as in ggml's q8_1.
// import: matvec/epilogue/soa_int8, matvec/prologue/plain, matvec/prologue/unscaled
const BYTES: u32 = 2u;
const LARGEST: f32 = 32639.0;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
