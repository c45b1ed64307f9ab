// wrong mmvq_q4_1: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q4_1
