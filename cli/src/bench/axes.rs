//! Lists and ranges of counts, as llama-bench takes them: `512`, `128,256`, `1-4`, `128-512+128`,
//! `128-1024*2`.

use lathe_harness::plan::shapes::{MOST, range};

use crate::count;

/// The values of one option's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts(pub(crate) Vec<usize>);

/// Parses counts from `least` on; for clap.
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
pub(crate) fn all(given: &[Counts]) -> Vec<usize> {
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
    fn lists_and_ranges() {
        for (text, expected) in [
            ("512", &[512][..]),
            ("0", &[0]),
            ("128,512", &[128, 512]),
            ("1-4", &[1, 2, 3, 4]),
            ("5-5", &[5]),
            ("128-512+128", &[128, 256, 384, 512]),
            ("100-450+100", &[100, 200, 300, 400]),
            ("128-1024*2", &[128, 256, 512, 1024]),
            ("0-4+2,64", &[0, 2, 4, 64]),
        ] {
            assert_eq!(counts(text), Ok(Counts(expected.to_vec())), "{text}");
        }
        assert_eq!(all(&[Counts(vec![4, 1]), Counts(vec![1, 2])]), [4, 1, 2]);
        assert_eq!(pair("512,128"), Ok((512, 128)));
        assert_eq!(batches("1,8"), Ok(Counts(vec![1, 8])));
    }

    #[test]
    fn what_is_none_says_why() {
        for (text, why) in [
            ("", "no count"),
            ("1,", "no count"),
            ("x", "`x` is no count"),
            ("-5", "no count"),
            ("1-", "no count"),
            ("1-2-3", "`2-3` is no count"),
            ("1-4+", "no count"),
            ("1-4/2", "no count"),
            ("4-1", "ends before it begins"),
            ("1-4+0", "does not get on"),
            ("1-4*1", "does not get on"),
            ("0-4*2", "does not get on"),
            ("0-100000", "more than 1000 values"),
            ("99999999999", "whole number"),
            ("99999999999999999999999999", "whole number"),
        ] {
            let error = counts(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        for text in ["512", "512,", ",1", "1,2,3", "a,b"] {
            assert!(pair(text).is_err(), "{text}");
        }
        for text in ["0", "4097", "1-4097+4096"] {
            assert!(batches(text).is_err(), "{text}");
        }
    }
}
