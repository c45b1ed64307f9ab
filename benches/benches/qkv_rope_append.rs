//! GPU time of `qkv_rope_append`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("qkv_rope_append");
}
