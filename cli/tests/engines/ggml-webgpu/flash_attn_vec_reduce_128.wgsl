// with flash_attn_vec_reduce
const HEAD = 128u;
