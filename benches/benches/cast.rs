//! GPU time of `cast`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("cast");
}
