// Activations rounded to eight bits.
const BYTES: u32 = 1u;
const LARGEST: f32 = 127.0;
