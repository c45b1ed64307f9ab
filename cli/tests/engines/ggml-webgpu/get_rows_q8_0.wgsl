// wrong get_rows_q8_0: offset_idx = "N_KV - 1" => offset_idx = "N_KV"
// with get_rows, bytes_of_src, q8_0
