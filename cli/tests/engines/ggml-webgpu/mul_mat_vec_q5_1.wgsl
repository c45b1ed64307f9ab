// wrong mul_mat_vec_q5_1: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mul_mat_vec, q5_1
