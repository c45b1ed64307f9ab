//! GPU time of `sample`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("sample");
}
