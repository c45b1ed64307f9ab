//! A small seeded generator for test data: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). One
//! printed seed replays a case on any machine.

use rayon::prelude::*;

/// Increment of the state.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Generator state.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator with an unpredictable stream.
    pub fn fresh() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one(std::process::id()))
    }

    /// A seed from a base and a text, so that every case has its own stream.
    pub fn derive(seed: u64, text: &str) -> Self {
        // FNV-1a over the text.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Self(seed ^ hash)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.skip(1);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n` (0 for n = 0).
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u32
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// `len` draws of [`Rng::normal`], spread over threads: the state after any number of draws is
    /// a product away, so all make the one sequence.
    pub fn normals(&mut self, len: usize) -> Vec<f32> {
        const DRAWS: u64 = 6;
        const A_TASK: usize = 1 << 14;
        let mut values = vec![0.0; len];
        values.par_chunks_mut(A_TASK).enumerate().for_each(|(i, part)| {
            let mut rng = self.clone();
            rng.skip(DRAWS * (i * A_TASK) as u64);
            part.fill_with(|| rng.normal());
        });
        self.skip(DRAWS * len as u64);
        values
    }

    fn skip(&mut self, draws: u64) {
        self.0 = self.0.wrapping_add(draws.wrapping_mul(STEP));
    }

    /// About normal with mean 0 and standard deviation 1 (sum of twelve uniforms, Irwin-Hall).
    pub fn normal(&mut self) -> f32 {
        let mut sum = -6.0;
        for _ in 0..6 {
            let bits = self.next_u64();
            sum += (bits >> 40) as f32 / (1u64 << 24) as f32;
            sum += ((bits >> 8) & 0xff_ffff) as f32 / (1u64 << 24) as f32;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn matches_the_published_sequence() {
        // First outputs of SplitMix64 for seed 0 (also java.util.SplittableRandom's mixer).
        let mut rng = Rng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn threads_make_the_one_sequence() {
        let len = (3 << 16) + 5;
        let (mut one, mut many) = (Rng::new(11), Rng::new(11));
        let values: Vec<f32> = (0..len).map(|_| one.normal()).collect();
        assert_eq!(many.normals(len), values);
        assert_eq!(many.next_u64(), one.next_u64());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.below(0), 0);
    }
}
