// Sums several values over `size` neighbouring lanes, a power of two up to 128, by halves: each step a lane
// hands half of its values to another and keeps the other half, so that nine sums take twelve exchanges and
// not forty-five. With `count` and `size` constants all conditions are, loops are unrolled, and values are
// registers.
const MOST_HALVED: u32 = 16u;

fn upper_half(count: u32) -> u32 { return (count + 1u) / 2u; }

// Values left after `steps` halvings.
fn left_after(count: u32, steps: u32) -> u32 { return (count + (1u << steps) - 1u) >> steps; }

// Values left to a lane: one, unless lanes are fewer than values.
fn values_left(count: u32, size: u32) -> u32 { return left_after(count, countTrailingZeros(size)); }

fn halve(values: ptr<function, array<f32, MOST_HALVED>>, count: u32, lane: u32, far: u32) {
    if (count == 1u) {
        (*values)[0] += subgroupShuffleXor((*values)[0], far);
    } else {
        let upper = (lane & far) != 0u;
        for (var i = 0u; i < upper_half(count); i++) {
            let low = (*values)[i];
            var high = 0.0;
            if (upper_half(count) + i < count) { high = (*values)[upper_half(count) + i]; }
            (*values)[i] = select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), far);
        }
    }
}

// Adds up values 0..count of each lane. The lane is left with values_left of them at the front.
fn sum_halves(values: ptr<function, array<f32, MOST_HALVED>>, count: u32, lane: u32, size: u32) {
    if (size > 1u) { halve(values, count, lane, size / 2u); }
    if (size > 2u) { halve(values, left_after(count, 1u), lane, size / 4u); }
    if (size > 4u) { halve(values, left_after(count, 2u), lane, size / 8u); }
    if (size > 8u) { halve(values, left_after(count, 3u), lane, size / 16u); }
    if (size > 16u) { halve(values, left_after(count, 4u), lane, size / 32u); }
    if (size > 32u) { halve(values, left_after(count, 5u), lane, size / 64u); }
    if (size > 64u) { halve(values, left_after(count, 6u), lane, size / 128u); }
}

// Values `first` on, `own` of them, that are a lane's and no other's.
struct Share { first: u32, own: u32 }

fn halved(share: Share, count: u32, lane: u32, far: u32) -> Share {
    let upper = (lane & far) != 0u;
    if (count == 1u) { return Share(share.first, select(share.own, 0u, upper)); }
    let half = upper_half(count);
    if (upper) { return Share(share.first + half, max(share.own, half) - half); }
    return Share(share.first, min(share.own, half));
}

// The lane's share of `count` values after sum_halves.
fn share_of(count: u32, lane: u32, size: u32) -> Share {
    var share = Share(0u, count);
    if (size > 1u) { share = halved(share, count, lane, size / 2u); }
    if (size > 2u) { share = halved(share, left_after(count, 1u), lane, size / 4u); }
    if (size > 4u) { share = halved(share, left_after(count, 2u), lane, size / 8u); }
    if (size > 8u) { share = halved(share, left_after(count, 3u), lane, size / 16u); }
    if (size > 16u) { share = halved(share, left_after(count, 4u), lane, size / 32u); }
    if (size > 32u) { share = halved(share, left_after(count, 5u), lane, size / 64u); }
    if (size > 64u) { share = halved(share, left_after(count, 6u), lane, size / 128u); }
    return share;
}
