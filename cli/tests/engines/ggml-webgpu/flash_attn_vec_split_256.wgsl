// wrong flash_attn_vec_256: K = { of = "k_cache", order = "tokens" } => K = "k_cache"
// with flash_attn_vec_split
const HEAD = 256u;
