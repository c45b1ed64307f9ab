// Blocks of the quantised formats as files have them.
// requires: override WEIGHT: u32

fn quantised_block_bytes() -> u32 {
    switch WEIGHT {
        case Q8_0: { return 34u; }
        case Q4_0: { return 18u; }
        case Q4_1: { return 20u; }
        case Q5_0: { return 22u; }
        case Q5_1: { return 24u; }
        case Q4_K: { return 144u; }
        case Q5_K: { return 176u; }
        default: { return 210u; }
    }
}
