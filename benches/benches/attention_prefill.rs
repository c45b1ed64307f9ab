//! GPU time of `attention_prefill`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("attention_prefill");
}
