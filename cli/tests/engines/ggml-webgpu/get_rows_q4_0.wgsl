// wrong get_rows_q4_0: offset_idx = "N_KV - 1" => offset_idx = "N_KV"
// with get_rows, bytes_of_src, q4_0
