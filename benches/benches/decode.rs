//! Wall time of a decode step of a small synthetic model of each architecture.

fn main() {
    lathe_benches::decode();
}
