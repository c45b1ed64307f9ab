// wrong get_rows_q4_k: offset_idx = "N_KV - 1" => offset_idx = "N_KV"
// with get_rows, bytes_of_src, scales_k, q4_k
