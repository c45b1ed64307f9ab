// How many words a head's key or value of one token takes in a KV cache: with q8_0 whole sixteen bytes of
// quants, then of their scales, an f16 for 32 of them.
// requires: override HEAD_DIM: u32
override KV_FORMAT: u32;

// Those of its values.
fn value_words() -> u32 {
    if (KV_FORMAT == KV_Q8_0) { return (HEAD_DIM + 15u) / 16u * 4u; }
    return select(HEAD_DIM / 2u, HEAD_DIM, KV_FORMAT == KV_F32);
}

fn vector_words() -> u32 {
    if (KV_FORMAT != KV_Q8_0) { return value_words(); }
    return value_words() + (HEAD_DIM + 255u) / 256u * 4u;
}
