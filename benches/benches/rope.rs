//! GPU time of `rope`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("rope");
}
