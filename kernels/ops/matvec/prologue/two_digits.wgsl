// Activations rounded to sixteen bits in two signed bytes: 127 * 256 + 127 at the most.
const BYTES: u32 = 2u;
const LARGEST: f32 = 32639.0;
