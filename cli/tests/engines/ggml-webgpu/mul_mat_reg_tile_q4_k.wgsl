// wrong mul_mat_reg_tile_q4_k: n = "N_TOKENS" => n = 5
// with mul_mat, bytes_of_src0, mul_mat_reg_tile, scales_k, q4_k
