//! GPU time of `lm_head_topk`, every variant on its benchmark shapes.

fn main() {
    lathe_benches::kernel("lm_head_topk");
}
