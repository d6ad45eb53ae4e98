//! Moments in text, read as Go's library reads them, with its words for what is wrong.
//! <https://pkg.go.dev/time#Parse>

use jiff::Timestamp;

/// The layouts of `Time` and of `MicroTime`.
pub const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
pub const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads `text` in [`SECONDS`], where any fraction may follow the seconds, or in [`MICROS`], where six digits must.
pub fn parse(text: &str, layout: &'static str) -> Result<Timestamp, String> {
    let mut reader = Reader { text, rest: text, layout };
    let year = reader.digits("2006", 4, 4)?;
    let month = reader.bounded("-", "01", 2, 1..=12, "month")?;
    reader.literal("-")?;
    let day = reader.digits("02", 2, 2)?;
    let hour = reader.bounded("T", "15", 1, 0..=23, "hour")?;
    let minute = reader.bounded(":", "04", 2, 0..=59, "minute")?;
    let second = reader.bounded(":", "05", 2, 0..=59, "second")?;
    let fraction = if layout == MICROS { reader.micros()? } else { reader.fraction() };
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(reader.said(&format!(": extra text: {}", quote(reader.rest))));
    }
    let date = jiff::civil::Date::new(i16::try_from(year).unwrap_or(-1), as_i8(month), as_i8(day));
    if date.is_err() {
        return Err(reader.said(": day out of range"));
    }
    let whole = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}");
    whole.parse().map_err(|_| reader.said(": year out of range"))
}

/// As this library quotes: what is beyond ASCII byte by byte.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..0x80 => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

fn as_i8(number: u32) -> i8 {
    i8::try_from(number).unwrap_or(-1)
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn said(&self, what: &str) -> String {
        format!("parsing time {}{what}", quote(self.text))
    }

    fn wrong(&self, rest: &str, element: &str) -> String {
        let (text, layout) = (quote(self.text), quote(self.layout));
        format!("parsing time {text} as {layout}: cannot parse {} as {}", quote(rest), quote(element))
    }

    fn literal(&mut self, sign: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(sign).ok_or_else(|| self.wrong(self.rest, sign))?;
        Ok(())
    }

    /// As many digits as there are, but no more than `most`.
    fn run(&self, most: usize) -> usize {
        self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count()
    }

    fn digits(&mut self, element: &str, least: usize, most: usize) -> Result<u32, String> {
        let count = self.run(most);
        if count < least {
            return Err(self.wrong(self.rest, element));
        }
        let (number, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(number.parse().unwrap_or_default())
    }

    fn bounded(
        &mut self,
        before: &str,
        element: &str,
        least: usize,
        range: std::ops::RangeInclusive<u32>,
        name: &str,
    ) -> Result<u32, String> {
        self.literal(before)?;
        let number = self.digits(element, least, 2)?;
        if range.contains(&number) { Ok(number) } else { Err(self.said(&format!(": {name} out of range"))) }
    }

    /// A fraction that the layout does not name; digits beyond nanoseconds count for nothing.
    fn fraction(&mut self) -> String {
        let Some(after) = self.rest.strip_prefix(['.', ',']) else { return String::new() };
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return String::new();
        }
        let (number, rest) = after.split_at(digits);
        self.rest = rest;
        format!(".{}", &number[..digits.min(9)])
    }

    fn micros(&mut self) -> Result<String, String> {
        let fits = self.rest.starts_with(['.', ','])
            && self.rest.bytes().skip(1).take(6).all(|b| b.is_ascii_digit());
        if !fits || self.rest.len() < 7 {
            return Err(self.wrong(self.rest, ".000000"));
        }
        let (number, rest) = self.rest.split_at(7);
        self.rest = rest;
        Ok(number.replace(',', "."))
    }

    fn offset(&mut self) -> Result<String, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok("Z".to_owned());
        }
        let shaped = match *self.rest.as_bytes() {
            [b'+' | b'-', a, b, b':', c, d, ..] => [a, b, c, d].iter().all(u8::is_ascii_digit),
            _ => false,
        };
        if !shaped {
            return Err(self.wrong(self.rest, "Z07:00"));
        }
        let (offset, rest) = self.rest.split_at(6);
        self.rest = rest;
        let number = |at: usize| offset[at..at + 2].parse().unwrap_or(99);
        let (hours, minutes): (u32, u32) = (number(1), number(4));
        match () {
            () if hours > 24 => Err(self.said(": time zone offset hour out of range")),
            () if minutes > 60 => Err(self.said(": time zone offset minute out of range")),
            () => {
                let minutes = hours * 60 + minutes;
                Ok(format!("{}{:02}:{:02}", &offset[..1], minutes / 60, minutes % 60))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_gos_words() {
        for (text, said) in [
            ("2018-08-30T14:10:55ZA", r#": extra text: "A""#),
            ("2018-08-30", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ("x", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
            (
                "2018-8-30T14:10:55Z",
                r#" as "2006-01-02T15:04:05Z07:00": cannot parse "8-30T14:10:55Z" as "01""#,
            ),
            ("2018-13-30T14:10:55Z", ": month out of range"),
            ("2018-02-30T14:10:55Z", ": day out of range"),
            ("2018-02-20T24:10:55Z", ": hour out of range"),
            ("2018-02-20T14:10:55", r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#),
            ("2018-02-20T14:10:55+25:00", ": time zone offset hour out of range"),
        ] {
            assert_eq!(parse(text, SECONDS), Err(format!("parsing time {text:?}{said}")), "{text}");
        }
        let no_fraction = r#"parsing time "2018-02-20T14:10:55Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#;
        assert_eq!(parse("2018-02-20T14:10:55Z", MICROS), Err(no_fraction.to_owned()));
    }

    #[test]
    fn what_go_takes_is_taken() {
        let whole = |text: &str| parse(text, SECONDS).map(|t| t.to_string());
        assert_eq!(whole("2018-02-20T4:10:55,123Z"), Ok("2018-02-20T04:10:55.123Z".to_owned()));
        assert_eq!(
            whole("2018-02-20T04:10:55.1234567890123+01:30"),
            Ok("2018-02-20T02:40:55.123456789Z".to_owned())
        );
        let micros = parse("2018-02-20T04:10:55.123456+00:00", MICROS).unwrap();
        assert_eq!(micros.to_string(), "2018-02-20T04:10:55.123456Z");
    }
}
