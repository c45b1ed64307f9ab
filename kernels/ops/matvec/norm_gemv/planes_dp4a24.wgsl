// norm_gemv/planes_dp4a24: as gemv_q/planes_dp4a24, activations as integers of 23 bits.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K) quantised, SoA-repacked  x, g: (K), f32   WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: every workgroup rounds all of x times g into its memory before its first product; on that way it
// sees every square, so the norm costs a sum over the workgroup and no second look at x. The norm's
// scale is one factor on each product.
// Source: own.
// import: matvec/epilogue/soa_int8, matvec/prologue/rms, matvec/prologue/rms_factor
// import: matvec/prologue/three_digits
// import: matvec/epilogue/soa_int8, matvec/prologue/rms, matvec/prologue/rms_factor
// import: matvec/prologue/three_digits
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
