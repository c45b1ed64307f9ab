//! GPU time of `attention_append`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("attention_append");
}
