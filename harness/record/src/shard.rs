//! A list of work cut into shards, for several machines or jobs.

use std::fmt;
use std::str::FromStr;

/// One of several shards, `I/N` on the command line. It has every N-th piece of work, the I-th
/// first: shards of one list are disjoint, complete, and of lengths that differ by one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

impl Shard {
    /// Whether a piece of work, by its place in the list from 0 on, is of this shard.
    pub fn has(self, place: usize) -> bool {
        place % self.count == self.index
    }

    /// What is of this shard, in the order of the list.
    pub fn of<T>(self, all: Vec<T>) -> Vec<T> {
        let own = all.into_iter().enumerate().filter(|(place, _)| self.has(*place));
        own.map(|(_, piece)| piece).collect()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        /// More than any scheduler starts.
        const MOST: usize = 1 << 16;
        let numbers = text.split_once('/').and_then(|(i, n)| i.parse().ok().zip(n.parse().ok()));
        match numbers {
            Some((i, n)) if (1..=n).contains(&i) && n <= MOST => {
                Ok(Self { index: i - 1, count: n })
            }
            _ => Err(format!("expected I/N with I from 1 to N and N at most {MOST}, such as 1/4")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shards_are_disjoint_complete_and_even(length in 0usize..400, count in 1usize..70) {
            let list: Vec<usize> = (0..length).collect();
            let shards: Vec<Vec<usize>> = (1..=count)
                .map(|i| format!("{i}/{count}").parse::<Shard>().expect("a shard").of(list.clone()))
                .collect();
            let mut all = shards.concat();
            all.sort_unstable();
            prop_assert_eq!(all, list);
            let lengths = || shards.iter().map(Vec::len);
            prop_assert!(lengths().max() <= lengths().min().map(|least| least + 1));
            for shard in &shards {
                prop_assert!(shard.is_sorted());
            }
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        assert_eq!("2/3".parse::<Shard>().map(|shard| shard.to_string()), Ok("2/3".into()));
        for text in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/4", "a/b", "1/65537", "1.0/2"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
