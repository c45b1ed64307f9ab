// with flash_attn_vec_split
const HEAD = {}u;
