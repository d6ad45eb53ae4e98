//! What a PKCS#10 request asks for.

use std::collections::BTreeSet;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

/// Subject and alternative names of a request, and the usages beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: usize,
    pub ip_addresses: usize,
    pub email_addresses: usize,
    pub uris: usize,
    /// The DNS names and IP addresses themselves, as text.
    pub hosts: BTreeSet<String>,
    pub usages: BTreeSet<String>,
}

impl Wanted {
    pub fn parse(pem: &[u8], usages: &[String]) -> Result<Self, String> {
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|e| e.to_string())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        }
        let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|e| e.to_string())?;
        let subject = &request.certification_request_info.subject;
        let mut wanted = Self { usages: usages.iter().cloned().collect(), ..Self::default() };
        // The last one counts, as in Go.
        if let Some(name) = subject.iter_common_name().last().and_then(|cn| cn.as_str().ok()) {
            name.clone_into(&mut wanted.common_name);
        }
        let organizations = subject.iter_organization().filter_map(|o| o.as_str().ok());
        wanted.organizations = organizations.map(str::to_owned).collect();
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(san) = extension else { continue };
            san.general_names.iter().for_each(|name| wanted.count(name));
        }
        Ok(wanted)
    }

    fn count(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => {
                self.dns_names += 1;
                self.hosts.insert((*name).to_owned());
            }
            GeneralName::IPAddress(octets) => {
                self.ip_addresses += 1;
                self.hosts.insert(address(octets));
            }
            GeneralName::RFC822Name(_) => self.email_addresses += 1,
            GeneralName::URI(_) => self.uris += 1,
            _ => {}
        }
    }
}

/// What is neither four nor sixteen octets is no address, and equals none.
fn address(octets: &[u8]) -> String {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .map_or_else(|_| String::new(), |ip| ip.to_string())
}
