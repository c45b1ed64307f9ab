//! GPU time of `fused_ffn`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("fused_ffn");
}
