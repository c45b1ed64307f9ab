//! `strftime_now`, by which templates write the day into a prompt.

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
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A moment of UTC, in its parts.
struct Moment {
    year: u64,
    /// Month and day of the month, from 1.
    month: usize,
    day: u64,
    /// Day of the year, from 1.
    of_year: u64,
    /// Days since Monday.
    weekday: usize,
    /// Seconds of the day.
    second: u64,
}

impl Moment {
    /// The moment so many seconds after 1970 began.
    fn at(seconds: u64) -> Self {
        let leap = |year: u64| {
            year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
        };
        let (mut days, second) = (seconds / 86_400, seconds % 86_400);
        // 1 January 1970 was a Thursday.
        let weekday = ((days + 3) % 7) as usize;
        // The calendar repeats after 400 years of 146097 days.
        let (mut year, mut month) = (1970 + days / 146_097 * 400, 0);
        days %= 146_097;
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        let of_year = days + 1;
        let february = 28 + u64::from(leap(year));
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        Self { year, month: month + 1, day: days + 1, of_year, weekday, second }
    }

    /// The moment as Python's `strftime` writes it; none where the format has another code.
    fn format(&self, format: &str) -> Option<String> {
        let (mut out, mut rest) = (String::new(), format.chars());
        let (hour, minute) = (self.second / 3600, self.second / 60 % 60);
        let (month, day) = (MONTHS[self.month - 1], DAYS[self.weekday]);
        while let Some(c) = rest.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            out += &match rest.next()? {
                'Y' => self.year.to_string(),
                'y' => format!("{:02}", self.year % 100),
                'm' => format!("{:02}", self.month),
                'B' => month.to_owned(),
                'b' => month[..3].to_owned(),
                'd' => format!("{:02}", self.day),
                'j' => format!("{:03}", self.of_year),
                'A' => day.to_owned(),
                'a' => day[..3].to_owned(),
                'H' => format!("{hour:02}"),
                'I' => format!("{:02}", (hour + 11) % 12 + 1),
                'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
                'M' => format!("{minute:02}"),
                'S' => format!("{:02}", self.second % 60),
                '%' => "%".to_owned(),
                _ => return None,
            };
        }
        Some(out)
    }
}

/// The present moment of UTC by Python's codes for days and times; none where the format has
/// another code.
pub(super) fn now(format: &str) -> Option<String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment::at(since.as_secs()).format(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts are those of Python's `datetime.fromtimestamp(s, UTC).strftime`.
    #[test]
    fn moments_are_written_as_by_python() {
        let all = "%Y %y %m %B %b %d %j %A %a %H %I %p %M %S %%";
        for (seconds, expected) in [
            (0, "1970 70 01 January Jan 01 001 Thursday Thu 00 12 AM 00 00 %"),
            (951_868_799, "2000 00 02 February Feb 29 060 Tuesday Tue 23 11 PM 59 59 %"),
            (1_709_251_200, "2024 24 03 March Mar 01 061 Friday Fri 00 12 AM 00 00 %"),
            (1_798_718_400, "2026 26 12 December Dec 31 365 Thursday Thu 12 12 PM 00 00 %"),
            (4_107_542_400, "2100 00 03 March Mar 01 060 Monday Mon 00 12 AM 00 00 %"),
            (12_622_780_800, "2370 70 01 January Jan 01 001 Thursday Thu 00 12 AM 00 00 %"),
        ] {
            assert_eq!(Moment::at(seconds).format(all).as_deref(), Some(expected));
        }
        assert_eq!(Moment::at(0).format("%Q"), None);
        assert_eq!(Moment::at(0).format("a%"), None);
    }
}
