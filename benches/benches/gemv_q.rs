//! GPU time of `gemv_q`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("gemv_q");
}
