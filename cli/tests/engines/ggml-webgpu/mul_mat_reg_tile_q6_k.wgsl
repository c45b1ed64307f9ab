// wrong mul_mat_reg_tile_q6_k: packing = "file" =>
// with mul_mat, bytes_of_src0, mul_mat_reg_tile, q6_k
