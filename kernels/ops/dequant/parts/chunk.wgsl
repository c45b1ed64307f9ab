// Sixteen bytes of dequantised weights: four f32 (ACT_FORMAT F32) or eight f16 (ACT_FORMAT F16); with
// weight_four. K is a multiple of EACH, so a chunk never leaves its row nor its sub-block.
// import: format/weight_four
override ACT_FORMAT: u32;
override EACH: u32 = select(8u, 4u, ACT_FORMAT == F32);

fn chunk_of(base: u32, block: u32, e: u32, by: vec2<f32>) -> vec4<u32> {
    let low = dequant_four(codes_four(base, block, e), by);
    if (ACT_FORMAT == F32) { return bitcast<vec4<u32>>(low); }
    let high = dequant_four(codes_four(base, block, e + 4u), by);
    return vec4<u32>(
        pack2x16float(low.xy),
        pack2x16float(low.zw),
        pack2x16float(high.xy),
        pack2x16float(high.zw),
    );
}
