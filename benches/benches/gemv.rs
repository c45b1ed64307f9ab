//! GPU time of `gemv`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("gemv");
}
