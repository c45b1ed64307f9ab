//! Dates as templates ask for them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// The last second of the year 9999, which has the last date of four digits.
const LAST: u64 = 253_402_300_799;

/// Longest format; those of templates have some ten characters.
const LONGEST: usize = 256;

/// `now` in UTC by a format of C's strftime, in English. An error names a conversion that is not
/// supported.
pub(super) fn format(now: SystemTime, format: &str) -> Result<String, String> {
    if format.len() > LONGEST {
        return Err(format!("a format has at most {LONGEST} bytes"));
    }
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs()).min(LAST);
    let now = UNIX_EPOCH + Duration::from_secs(seconds);
    // As 2024-11-22T12:34:56Z.
    let stamp = humantime::format_rfc3339_seconds(now).to_string();
    let (date, time) = (&stamp[..10], &stamp[11..19]);
    let (year, month, day) = (&date[..4], &date[5..7], &date[8..]);
    let month_name = MONTHS[month.parse::<usize>().unwrap_or(1) - 1];
    let day_name = DAYS[(seconds / 86_400 % 7) as usize];
    let hour = seconds / 3600 % 24;
    let twelve = format!("{:02}", (hour + 11) % 12 + 1);
    let spaced_day = format!("{:>2}", day.trim_start_matches('0'));
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        text.push_str(match chars.next().unwrap_or('%') {
            'Y' => year,
            'y' => &year[2..],
            'm' => month,
            'B' => month_name,
            'b' => &month_name[..3],
            'd' => day,
            'e' => &spaced_day,
            'A' => day_name,
            'a' => &day_name[..3],
            'H' => &time[..2],
            'I' => &twelve,
            'M' => &time[3..5],
            'S' => &time[6..],
            'p' if hour < 12 => "AM",
            'p' => "PM",
            'F' => date,
            'T' => time,
            '%' => "%",
            other => return Err(format!("%{other} is not supported")),
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
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
        // Clocks know later days.
        assert_eq!(at(u64::from(u32::MAX) * 1000, "%F").unwrap(), "9999-12-31");
    }

    #[test]
    fn other_conversions_are_refused() {
        assert_eq!(at(0, "%Z").unwrap_err(), "%Z is not supported");
        assert!(at(0, &"%Y".repeat(200)).is_err());
    }
}
