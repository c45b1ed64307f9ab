//! GPU time of `rms_norm`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("rms_norm");
}
