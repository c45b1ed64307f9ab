// with get_rows, bytes_of_src, {}
