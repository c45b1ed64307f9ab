//! GPU time of `matmul_rmsnorm_fused`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("matmul_rmsnorm_fused");
}
