// wrong mul_mat_reg_tile_q8_0: packing = "file" =>
// with mul_mat, bytes_of_src0, mul_mat_reg_tile, q8_0
