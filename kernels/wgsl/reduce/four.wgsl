// Sums four values over each group of `lanes` (a power of two from 4 on) lanes of a subgroup. Half
// of the lanes keep two of the four, then a quarter one: six exchanges and not twenty. Lane i of
// its group is left with value 4 i / lanes.
fn sum_four(v: vec4<f32>, lane: u32, lanes: u32) -> f32 {
    let upper = (lane & (lanes / 2u)) != 0u;
    let odd = (lane & (lanes / 4u)) != 0u;
    let two = select(v.xy, v.zw, upper)
        + subgroupShuffleXor(select(v.zw, v.xy, upper), lanes / 2u);
    var one = select(two.x, two.y, odd)
        + subgroupShuffleXor(select(two.y, two.x, odd), lanes / 4u);
    for (var step = lanes / 8u; step > 0u; step /= 2u) { one += subgroupShuffleXor(one, step); }
    return one;
}
