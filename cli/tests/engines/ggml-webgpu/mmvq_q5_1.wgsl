// wrong mmvq_q5_1: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q5_1
