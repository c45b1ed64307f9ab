// wrong mmvq_q4_0: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q4_0
