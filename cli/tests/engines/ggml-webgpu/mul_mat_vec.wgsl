// with mul_mat, bytes_of_src0, rows, mul_mat_vec, {}
