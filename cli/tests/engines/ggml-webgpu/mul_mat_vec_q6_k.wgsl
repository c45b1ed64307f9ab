// wrong mul_mat_vec_q6_k: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mul_mat_vec, q6_k
