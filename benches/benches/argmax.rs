//! GPU time of `argmax`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("argmax");
}
