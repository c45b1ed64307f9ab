// wrong mmvq_q5_0: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q5_0
