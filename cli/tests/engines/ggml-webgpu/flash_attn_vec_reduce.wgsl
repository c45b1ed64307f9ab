// with flash_attn_vec_reduce
const HEAD = {}u;
