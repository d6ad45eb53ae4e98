//! Pulling images, and removing those that nobody uses.

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

/// Upstream's `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerificationPolicy {
    NeverVerify,
    /// Images that the kubelet did not pull are everybody's.
    #[default]
    NeverVerifyPreloadedImages,
    /// Only those of them that are named are.
    NeverVerifyAllowlistedImages,
    AlwaysVerify,
}

/// When credentials are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    pub policy: VerificationPolicy,
    /// Repositories, without tag or digest; one that ends with `/*` stands for all below it.
    pub allowlist: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSettings {
    /// Percent of the images' disk in use from which on unused images are removed, and down to which; upstream's.
    pub high_percent: u8,
    pub low_percent: u8,
    /// An image that came so recently stays: its pod may be about to start.
    pub min_age: Duration,
    /// An image that nobody has used for so long goes, however much room there is. `None`: never.
    pub max_age: Option<Duration>,
    /// How many pulls go on at once. `None`: any number.
    pub parallel_pulls: Option<usize>,
    /// How many pulls begin in a second; 0: any number. More wait.
    pub pulls_per_second: u32,
    /// How many may begin at once after a quiet time.
    pub pull_burst: u32,
    /// How many the Node's status names. `None`: all.
    pub shown: Option<usize>,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            min_age: Duration::from_secs(120),
            max_age: None,
            parallel_pulls: Some(1),
            pulls_per_second: 5,
            pull_burst: 10,
            shown: Some(50),
        }
    }
}

impl ImageSettings {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        let settings = Self {
            high_percent: reader.whole("imageGCHighThresholdPercent", 0..=100).unwrap_or(all.high_percent),
            low_percent: reader.whole("imageGCLowThresholdPercent", 0..=100).unwrap_or(all.low_percent),
            min_age: reader.duration("imageMinimumGCAge").unwrap_or(all.min_age),
            max_age: reader.duration("imageMaximumGCAge"),
            parallel_pulls: parallel(reader),
            pulls_per_second: reader
                .whole("registryPullQPS", 0..=i64::from(u32::MAX))
                .unwrap_or(all.pulls_per_second),
            pull_burst: reader.whole("registryBurst", 1..=i64::from(u32::MAX)).unwrap_or(all.pull_burst),
            shown: match reader.whole("nodeStatusMaxImages", -1..=i64::from(u32::MAX)) {
                Some(-1) => None,
                Some(number) => usize::try_from(number).ok(),
                None => all.shown,
            },
        };
        if settings.low_percent >= settings.high_percent {
            let (low, high) = (settings.low_percent, settings.high_percent);
            reader.mistake(
                "imageGCLowThresholdPercent",
                format!("{low} is not less than imageGCHighThresholdPercent {high}"),
            );
        }
        if settings.max_age.is_some_and(|age| age <= settings.min_age) {
            reader.mistake("imageMaximumGCAge", "it is not more than imageMinimumGCAge");
        }
        settings
    }

    pub fn show(&self, all: &mut Written) {
        let shown = self.shown.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX));
        let entries = [
            ("imageGCHighThresholdPercent", json!(self.high_percent)),
            ("imageGCLowThresholdPercent", json!(self.low_percent)),
            ("imageMinimumGCAge", json!(written(self.min_age))),
            ("imageMaximumGCAge", json!(written(self.max_age.unwrap_or_default()))),
            ("serializeImagePulls", json!(self.parallel_pulls == Some(1))),
            ("registryPullQPS", json!(self.pulls_per_second)),
            ("registryBurst", json!(self.pull_burst)),
            ("nodeStatusMaxImages", json!(shown)),
        ];
        all.extend(entries.map(|(name, value)| (name.to_owned(), value)));
        if self.parallel_pulls != Some(1) {
            all.insert("maxParallelImagePulls".to_owned(), json!(self.parallel_pulls));
        }
    }

    /// Bytes of images to remove where so many of the disk's are free.
    pub fn to_free(&self, available: u64, capacity: u64) -> u64 {
        let of =
            |percent: u8| u64::try_from(u128::from(capacity) * u128::from(percent) / 100).unwrap_or(u64::MAX);
        let used = capacity.saturating_sub(available);
        if used < of(self.high_percent) { 0 } else { used.saturating_sub(of(self.low_percent)) }
    }
}

/// One at a time unless somebody asks for more.
fn parallel(reader: &mut Reader<'_>) -> Option<usize> {
    let serialize: Option<bool> = reader.get("serializeImagePulls");
    let most: Option<i64> = reader.whole("maxParallelImagePulls", 1..=i64::from(u32::MAX));
    match (serialize, most) {
        (Some(false), most) => most.and_then(|most| usize::try_from(most).ok()),
        (_, None | Some(1)) => Some(1),
        (_, Some(_)) => {
            reader.mistake("maxParallelImagePulls", "it needs serializeImagePulls: false");
            Some(1)
        }
    }
}

/// Whether a name can be an image's at all (the distribution project's reference grammar).
pub fn valid_name(image: &str) -> bool {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    let (host, path) = match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (Some(host), path),
        _ => (None, image),
    };
    let (path, tag) = match path.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (path, None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let part = |p: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        p.starts_with(plain) && p.ends_with(plain) && p.chars().all(|c| plain(c) || "._-".contains(c))
    };
    host.is_none_or(|h| !h.is_empty() && h.chars().all(|c| word(c) || ":[]".contains(c)))
        && path.split('/').all(part)
        && tag.is_none_or(|t| !t.is_empty() && t.len() <= 128 && t.chars().all(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_go_from_85_percent_to_80() {
        let all = ImageSettings::default();
        assert_eq!(all.to_free(151, 1000), 0);
        assert_eq!(all.to_free(150, 1000), 50);
        assert_eq!(all.to_free(100, 1000), 100);
        assert_eq!(ImageSettings { high_percent: 0, low_percent: 0, ..all }.to_free(1000, 1000), 0);
    }
}
