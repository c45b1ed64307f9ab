//! GPU time of `embed`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("embed");
}
