//! GPU time of `attention_decode`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("attention_decode");
}
