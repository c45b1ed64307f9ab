//! GPU time of `dequant`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("dequant");
}
