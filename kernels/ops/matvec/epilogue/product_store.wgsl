// A row's product goes where store_y has it.
// import: matvec/schedule/product
// requires: override Y_OFFSET: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
const PAIRED: bool = false;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return old_y(Y_OFFSET + row); }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { store_y(Y_OFFSET + product.row, product.value, product.y_before); }
}
