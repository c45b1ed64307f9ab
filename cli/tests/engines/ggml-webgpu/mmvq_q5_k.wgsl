// wrong mmvq_q5_k: ne0 = "K" => ne0 = "K / 2"
// with mul_mat, bytes_of_src0, rows, mmvq, scales_k, q5_k
