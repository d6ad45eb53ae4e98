//! Whether a text is a cron schedule: five fields, or a descriptor such as `@daily` or `@every 1h`.

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: &[&str] =
    &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// One field: its least and greatest value, and the names that stand for values from the least on.
struct Field {
    range: (u32, u32),
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { range: (0, 59), names: &[] },
    Field { range: (0, 23), names: &[] },
    Field { range: (1, 31), names: &[] },
    Field { range: (1, 12), names: MONTHS },
    Field { range: (0, 6), names: DAYS },
];

pub fn check(text: &str) -> Result<(), String> {
    if let Some(period) = text.strip_prefix("@every ") {
        let starts = period.trim().starts_with(|c: char| c.is_ascii_digit());
        let ends = period.trim().ends_with(['s', 'm', 'h']);
        let message = || format!("failed to parse duration {text}: time: invalid duration {period:?}");
        return if starts && ends { Ok(()) } else { Err(message()) };
    }
    if text.starts_with('@') {
        let known = DESCRIPTORS.contains(&text);
        return if known { Ok(()) } else { Err(format!("unrecognized descriptor: {text}")) };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let found: Vec<String> = fields.iter().map(|f| (*f).to_owned()).collect();
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), found.join(" ")));
    }
    fields
        .iter()
        .zip(&FIELDS)
        .try_for_each(|(text, field)| text.split(',').try_for_each(|part| field.part(part)))
}

impl Field {
    /// `*`, `n`, `a-b`, each with an optional `/step`.
    fn part(&self, part: &str) -> Result<(), String> {
        let (span, step) = part.split_once('/').map_or((part, None), |(span, step)| (span, Some(step)));
        if step.is_some_and(|step| step.parse::<u32>().is_ok_and(|n| n == 0)) {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        if let Some(step) = step {
            step.parse::<u32>().map_err(|_| format!("failed to parse int from {step}"))?;
        }
        if matches!(span, "*" | "?") {
            return Ok(());
        }
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last) = (self.value(first)?, self.value(last)?);
        let (least, most) = self.range;
        if first < least {
            return Err(format!("beginning of range ({first}) below minimum ({least}): {part}"));
        }
        if last > most {
            return Err(format!("end of range ({last}) above maximum ({most}): {part}"));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_lowercase();
        match self.names.iter().position(|name| *name == lower) {
            Some(i) => Ok(self.range.0 + u32::try_from(i).unwrap_or(u32::MAX)),
            None => text.parse().map_err(|_| format!("failed to parse int from {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar mon", "0 0 ? * 6", "@daily", "@every 1h30m"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "* * * * mon-sun",
            "*/0 * * * *",
            "a * * * *",
            "@never",
            "@every x",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
