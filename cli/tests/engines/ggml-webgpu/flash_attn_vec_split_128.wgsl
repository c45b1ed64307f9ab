// wrong flash_attn_vec_128: K = { of = "k_cache", order = "tokens" } => K = "k_cache"
// with flash_attn_vec_split
const HEAD = 128u;
