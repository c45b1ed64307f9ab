//! Sizes of memory on the command line.

/// Bytes of the command line: a number with KB, MB, GB, KiB, MiB or GiB, or bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
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

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("123456", 123_456),
            ("7 B", 7),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("7.5GB", 7_500_000_000),
            ("64KB", 64_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1.5",
            "1e9GB",
            "nanGB",
            "infGiB",
            "1 mib",
            "12 parsecs",
            "99999999999GiB",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
