//! What a PKCS#10 request asks for.

use coracle_api::certificate::{Holder, Name};
use std::collections::BTreeSet;

/// Subject and alternative names of a request, and the usages beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Empty where there is none.
    pub common_name: String,
    pub organizations: Vec<String>,
    pub names: Vec<Name>,
    pub usages: BTreeSet<String>,
}

impl Wanted {
    /// The error says why the request names nobody.
    pub fn parse(pem: &[u8], usages: &[String]) -> Result<Self, String> {
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|e| e.to_string())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        }
        let holder = Holder::of_request(&block.contents).map_err(|e| e.to_string())?;
        Ok(Self {
            common_name: holder.common_name().unwrap_or_default().to_owned(),
            organizations: holder.organizations,
            names: holder.names,
            usages: usages.iter().cloned().collect(),
        })
    }

    pub fn has(&self, kind: fn(&Name) -> bool) -> bool {
        self.names.iter().any(kind)
    }
}
