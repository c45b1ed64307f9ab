// Rows in any format, word by word, for format/weight_at.
// requires: var weights: array<u32>
override K: u32;

fn packed_word(i: u32) -> u32 { return weights[i]; }
