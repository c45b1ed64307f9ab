//! Values as a function of seed, tensor and element.

/// The values of a tensor.
pub(super) enum Values {
    /// Close to normal, mean 0.
    Normal { key: u64, scale: f32 },
    /// Uniform from 0.9 to 1.1.
    AboutOne { key: u64 },
    /// Given one by one.
    Given(Vec<f32>),
}

/// Increment and finaliser of splitmix64 (Steele, Lea, Flood 2014): a counter in, 64 random bits
/// out, so that any element can be had without those before it.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[inline]
fn random(key: u64, index: u64) -> u64 {
    mix(key.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1))))
}

fn key(seed: u64, stream: u64) -> u64 {
    // Mixed twice, or seeds and streams that differ by one would run into each other.
    mix(mix(seed.wrapping_add(GAMMA)).wrapping_add(GAMMA.wrapping_mul(stream.wrapping_add(1))))
}

impl Values {
    pub(super) fn normal(seed: u64, stream: u64, std: f64) -> Self {
        // The sum of four uniform 16-bit integers, mean taken off, has variance 4·(2³²−1)/12. It
        // ends at 3.46 standard deviations, which no test here minds, and costs one word of
        // randomness.
        let unit = (4.0 * (65536.0f64 * 65536.0 - 1.0) / 12.0).sqrt();
        Self::Normal { key: key(seed, stream), scale: (std / unit) as f32 }
    }

    pub(super) fn about_one(seed: u64, stream: u64) -> Self {
        Self::AboutOne { key: key(seed, stream) }
    }

    /// Values from number `first` to number `end`.
    pub(super) fn part(&self, first: u64, end: u64) -> Vec<f32> {
        match self {
            Self::Normal { key, scale } => {
                let value = |i| {
                    let r = random(*key, i);
                    let sum = (r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48);
                    (sum as i32 - 2 * 0xffff) as f32 * scale
                };
                (first..end).map(value).collect()
            }
            Self::AboutOne { key } => {
                let unit = |i| (random(*key, i) >> 40) as f32 / (1u32 << 24) as f32;
                (first..end).map(|i| 0.9 + 0.2 * unit(i)).collect()
            }
            Self::Given(values) => values[first as usize..end as usize].to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_is_splitmix64() {
        // The published sequence from seed 1234567.
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        for (index, expected) in expected.into_iter().enumerate() {
            assert_eq!(random(1234567, index as u64), expected);
        }
    }
}
