// wrong mul_mat_vec_q4_1: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mul_mat_vec, q4_1
