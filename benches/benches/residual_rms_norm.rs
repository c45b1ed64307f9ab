//! GPU time of `residual_rms_norm`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("residual_rms_norm");
}
