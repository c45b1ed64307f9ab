//! GPU time of `matmul`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("matmul");
}
