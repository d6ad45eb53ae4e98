//! Ranges of addresses as `--cluster-cidr` and `--service-cidr` say them: one, or one of each family with a comma between.
//! The first is of the cluster's primary family.

use ipnet::IpNet;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cidrs(Vec<IpNet>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrsError {
    #[error("is no CIDR")]
    NoCidr,
    #[error("has more than one range of a family")]
    Twice,
}

impl Cidrs {
    pub fn iter(&self) -> impl Iterator<Item = IpNet> {
        self.0.iter().copied()
    }

    pub fn first(&self) -> Option<IpNet> {
        self.0.first().copied()
    }
}

impl FromStr for Cidrs {
    type Err = CidrsError;

    fn from_str(text: &str) -> Result<Self, CidrsError> {
        let parsed: Result<Vec<IpNet>, _> = text.split(',').map(|part| part.trim().parse()).collect();
        let all = parsed.map_err(|_| CidrsError::NoCidr)?;
        let six = all.iter().filter(|range| range.addr().is_ipv6()).count();
        if six > 1 || all.len() - six > 1 { Err(CidrsError::Twice) } else { Ok(Self(all)) }
    }
}

impl fmt::Display for Cidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_family_in_the_order_that_was_said() {
        for text in ["10.42.0.0/16", "fd42::/56,10.42.0.0/16", "10.42.0.0/16,fd42::/56"] {
            let read: Cidrs = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        assert_eq!("10.42.0.0/16, fd42::/56".parse::<Cidrs>().unwrap().to_string(), "10.42.0.0/16,fd42::/56");
        for (text, why) in [
            ("", CidrsError::NoCidr),
            ("10.42", CidrsError::NoCidr),
            ("10.42.0.0/16,", CidrsError::NoCidr),
            ("10.42.0.0/16,10.43.0.0/16", CidrsError::Twice),
            ("10.42.0.0/16,fd42::/56,fd43::/56", CidrsError::Twice),
        ] {
            assert_eq!(text.parse::<Cidrs>(), Err(why), "{text}");
        }
    }
}
