//! GPU time of every variant of every kernel on its benchmark shapes.

fn main() {
    lathe_benches::kernels();
}
