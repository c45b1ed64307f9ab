//! GPU time of `norm_gemv`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("norm_gemv");
}
