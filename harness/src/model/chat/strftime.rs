//! Dates as templates ask for them.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// From the day of the week of 1970-01-01 on.
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Longest format; those of templates have some ten characters.
const LONGEST: usize = 256;

/// `now` in UTC by a format of C's strftime, in English. An error names a conversion that is not
/// supported.
pub(super) fn format(now: SystemTime, format: &str) -> Result<String, String> {
    if format.len() > LONGEST {
        return Err(format!("a format has at most {LONGEST} bytes"));
    }
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(days % 7) as usize]);
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let conversion = chars.next().unwrap_or('%');
        let done = match conversion {
            'Y' => write!(text, "{year}"),
            'y' => write!(text, "{:02}", year % 100),
            'm' => write!(text, "{month:02}"),
            'B' => write!(text, "{month_name}"),
            'b' => write!(text, "{}", &month_name[..3]),
            'd' => write!(text, "{day:02}"),
            'e' => write!(text, "{day:2}"),
            'A' => write!(text, "{day_name}"),
            'a' => write!(text, "{}", &day_name[..3]),
            'H' => write!(text, "{hour:02}"),
            'I' => write!(text, "{:02}", (hour + 11) % 12 + 1),
            'M' => write!(text, "{minute:02}"),
            'S' => write!(text, "{second:02}"),
            'p' => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            'F' => write!(text, "{year}-{month:02}-{day:02}"),
            'T' => write!(text, "{hour:02}:{minute:02}:{second:02}"),
            '%' => write!(text, "%"),
            other => return Err(format!("%{other} is not supported")),
        };
        done.map_err(|e| e.to_string())?;
    }
    Ok(text)
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // 400 years have always as many days; the rest is few enough to count.
    let (mut year, mut left) = (1970 + 400 * (days / 146_097), days % 146_097);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, wanted: &str) -> Result<String, String> {
        format(UNIX_EPOCH + Duration::from_secs(seconds), wanted)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let all = "%Y-%m-%d %H:%M:%S %a %A %b %B %y %I%p %e|%F %T|%%";
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 Thu Thursday Jan January 70 12AM  1|1970-01-01 00:00:00|%"),
            // date -u -d @N
            (
                951_827_696,
                "2000-02-29 12:34:56 Tue Tuesday Feb February 00 12PM 29|2000-02-29 12:34:56|%",
            ),
            (
                4_107_542_399,
                "2100-02-28 23:59:59 Sun Sunday Feb February 00 11PM 28|2100-02-28 23:59:59|%",
            ),
            (
                1_732_233_600,
                "2024-11-22 00:00:00 Fri Friday Nov November 24 12AM 22|2024-11-22 00:00:00|%",
            ),
        ] {
            assert_eq!(at(seconds, all).unwrap(), expected);
        }
        assert_eq!(at(13_574_563_200, "%d %b %Y").unwrap(), "29 Feb 2400");
        // The last day that a 64-bit clock knows, and no sooner panics.
        assert!(at(u64::from(u32::MAX) * 1000, "%F").is_ok());
    }

    #[test]
    fn other_conversions_are_refused() {
        assert_eq!(at(0, "%Z").unwrap_err(), "%Z is not supported");
        assert!(at(0, &"%Y".repeat(200)).is_err());
    }
}
