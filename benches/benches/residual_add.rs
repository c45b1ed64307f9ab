//! GPU time of `residual_add`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("residual_add");
}
