// wrong mmvq_q8_0: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q8_0
