//! GPU time of `qk_norm_rope`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("qk_norm_rope");
}
