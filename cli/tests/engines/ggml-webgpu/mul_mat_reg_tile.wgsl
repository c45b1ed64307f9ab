// with mul_mat, bytes_of_src0, mul_mat_reg_tile, {}
