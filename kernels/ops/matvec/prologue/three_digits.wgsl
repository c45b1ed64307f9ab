// Rounded activations of 23 bits in three bytes: off by at most 2^-23 of the largest of their 32, about
// what adding f32 products rounds away. Every second one against quants of four bits has four bits less
// (int8_digits).
const BYTES: u32 = 3u;
// 2^22 - 1 - 32896 is the largest integer that the rounding by an addition holds; seven less leaves
// room for a division that is not correctly rounded, which would turn the largest one's sign.
const LARGEST: f32 = 4161400.0;
