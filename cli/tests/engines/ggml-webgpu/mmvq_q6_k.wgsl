// wrong mmvq_q6_k: packing = "file" =>
// with mul_mat, bytes_of_src0, rows, mmvq, q6_k
