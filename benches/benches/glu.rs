//! GPU time of `glu`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("glu");
}
