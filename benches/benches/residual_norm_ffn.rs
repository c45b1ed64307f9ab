//! GPU time of the kernel that this target is named after, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel(env!("CARGO_CRATE_NAME"));
}
