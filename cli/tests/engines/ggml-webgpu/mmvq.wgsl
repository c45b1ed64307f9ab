// with mul_mat, bytes_of_src0, rows, mmvq, {}
