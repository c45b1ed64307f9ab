// act(gate) * up from products of rows. Gate and up rows are taken in turn; what they
// leave on lanes apart meets by two exchanges.
// import: format/store_pair, math/activation, matvec/schedule/product
// requires: override N: u32
const PAIRED: bool = true;

// Row 2i is output i's gate row, row 2i + 1 its up row.
fn stored_row(row: u32) -> u32 { return row % 2u * N + row / 2u; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    let up = subgroupShuffleXor(product.value, lanes / 4u);
    let one = activate(product.value) * up;
    let other = subgroupShuffleXor(one, lanes / 2u);
    // Of four rows two outputs: the lane of the first has both.
    if (product.live && product.row % 4u == 0u) {
        let at = product.row / 2u;
        let both = at + 1u < N;
        store_pair(at, vec2<f32>(one, select(0.0, other, both)), both);
    }
}
