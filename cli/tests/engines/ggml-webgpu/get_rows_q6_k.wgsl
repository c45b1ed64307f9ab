// wrong get_rows_q6_k: offset_idx = "N_KV - 1" => offset_idx = "N_KV"
// with get_rows, bytes_of_src, q6_k
