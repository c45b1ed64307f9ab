//! Parsers of values on the command line, for clap.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lathe_harness::plan::shapes::{MOST, range};
use lathe_kernels::{Feature, FloatFormat, KvFormat};

/// Parses a whole number within bounds; for clap.
pub(crate) fn within<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (LEAST..=MOST).contains(&n) => Ok(n),
        _ => Err(format!("expected a whole number from {LEAST} to {MOST}")),
    }
}

/// A count for the command line: from 0 to 2^24, which is more than any context holds.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    within::<0, { 1 << 24 }>(text)
}

/// A feature of `--without`.
pub(crate) fn feature() -> impl TypedValueParser<Value = Feature> {
    let names = Feature::ALL.map(Feature::name);
    PossibleValuesParser::new(names).map(|name| {
        let named = Feature::ALL.into_iter().find(|feature| feature.name() == name);
        named.expect("clap takes no other name")
    })
}

/// Tokens of the largest chunk of a prompt: 0, or a power of two that tensors have room for.
pub(crate) fn chunk(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Ok(0),
        Ok(n) if n.is_power_of_two() && (16..=8192).contains(&n) => Ok(n),
        _ => Err("expected 0 or a power of two from 16 to 8192".into()),
    }
}

/// Bytes of the command line: a number with KB, MB, GB, KiB, MiB or GiB, or bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let expected =
        || format!("expected bytes, or a number with a unit such as 512MiB or 7.5GB, not {text}");
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(expected);
    }
    let is_decimal = unit > 1 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    match number.parse::<f64>() {
        // Less than 2^53 is exact enough, and no device has more.
        Ok(value) if is_decimal && value * (unit as f64) < 9e15 => Ok((value * unit as f64) as u64),
        _ => Err(expected()),
    }
}

/// Parses a storage of the inputs of matrices.
pub(crate) fn float_format() -> impl TypedValueParser<Value = FloatFormat> {
    let known = || FloatFormat::STORED.iter().copied();
    PossibleValuesParser::new(known().map(FloatFormat::name))
        .try_map(move |text| known().find(|format| format.name() == text).ok_or("no format"))
}

/// Parses a storage of a KV cache.
pub(crate) fn kv_format() -> impl TypedValueParser<Value = KvFormat> {
    let known = || KvFormat::ALL.iter().copied();
    let value = |format: KvFormat| {
        PossibleValue::new(format.name()).help(match format {
            KvFormat::F32 => "32-bit floats",
            KvFormat::F16 => "16-bit floats",
            KvFormat::Q8_0 => "Integers of 8 bits, a scale for every 32",
        })
    };
    PossibleValuesParser::new(known().map(value))
        .try_map(move |text| known().find(|format| format.name() == text).ok_or("no format"))
}

/// Counts as llama-bench takes them: lists and ranges such as `128,256`, `1-4`, `128-512+128` and
/// `128-1024*2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts(Vec<usize>);

/// Parses lists and ranges of counts.
pub(crate) fn counts(text: &str) -> Result<Counts, String> {
    let mut values = Vec::new();
    for part in text.split(',') {
        values.extend(range(part.trim(), "-", number)?);
        if values.len() > MOST {
            return Err(format!("more than {MOST} values"));
        }
    }
    Ok(Counts(values))
}

/// Parses counts like [`counts`], from 1 on: steps per submission.
pub(crate) fn batches(text: &str) -> Result<Counts, String> {
    let Counts(values) = counts(text)?;
    match values.iter().find(|n| !(1..=4096).contains(*n)) {
        Some(n) => Err(format!("{n}: a submission has 1 to 4096 steps")),
        None => Ok(Counts(values)),
    }
}

/// Counts of prompt and generated tokens, `512,128`.
pub(crate) fn pair(text: &str) -> Result<(usize, usize), String> {
    let (prompt, generate) = text.split_once(',').ok_or_else(|| {
        "expected two counts, prompt and generated tokens, such as 512,128".to_owned()
    })?;
    Ok((number(prompt.trim())?, number(generate.trim())?))
}

fn number(text: &str) -> Result<usize, String> {
    // `parse` would take a sign too.
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        true => count(text).map_err(|e| format!("`{text}`: {e}")),
        false => Err(format!(
            "`{text}` is no count; expected N, first-last, first-last+step or first-last*factor"
        )),
    }
}

/// All values of an option that may be repeated, each once, in their order.
pub(crate) fn all_counts(given: &[Counts]) -> Vec<usize> {
    let mut values = Vec::new();
    for n in given.iter().flat_map(|Counts(values)| values) {
        if !values.contains(n) {
            values.push(*n);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("123456", 123_456),
            ("7 B", 7),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("7.5GB", 7_500_000_000),
            ("64KB", 64_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5", "1e9GB", "nanGB", "1 mib", "99999999999GiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_lists_and_ranges() {
        for (text, expected) in [
            ("128,512", &[128, 512][..]),
            ("1-4", &[1, 2, 3, 4]),
            ("0-4+2,64", &[0, 2, 4, 64]),
            ("128-1024*2", &[128, 256, 512, 1024]),
        ] {
            assert_eq!(counts(text), Ok(Counts(expected.to_vec())), "{text}");
        }
        assert_eq!(all_counts(&[Counts(vec![4, 1]), Counts(vec![1, 2])]), [4, 1, 2]);
        assert_eq!(pair("512,128"), Ok((512, 128)));
        for (text, why) in [
            ("1,", "no count"),
            ("-5", "no count"),
            ("1-2-3", "`2-3` is no count"),
            ("0-100000", "more than 1000 values"),
            ("99999999999999999999999999", "whole number"),
        ] {
            let error = counts(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(["512", ",1", "1,2,3", "a,b"].iter().all(|text| pair(text).is_err()));
        assert!(["0", "1-4097+4096"].iter().all(|text| batches(text).is_err()));
    }
}
