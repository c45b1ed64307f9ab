// wrong mul_mat_vec_q4_k: src0 = "weights"\nsrc1 = "x" => src0 = "x"\nsrc1 = "weights"
// with mul_mat, bytes_of_src0, rows, mul_mat_vec, scales_k, q4_k
