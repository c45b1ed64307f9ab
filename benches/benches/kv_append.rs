//! GPU time of `kv_append`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("kv_append");
}
