// Blocks of 32 values in 8 bits.
// with quantize_q8
const SUMS = false;
