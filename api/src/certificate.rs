//! Whom a certificate or a certificate request names: the one reader of subjects and alternative names.
//!
//! The API server, the kubelets and the signers decide by what they read here. Two readers that disagree about one
//! subject would let somebody be approved as one user and be taken for another, so there is no second reader, and a
//! subject that could be read in two ways is refused: <https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.6> allows
//! several common names, Kubernetes has no meaning for the second one.

use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Upstream's attribute of the subject that carries the user's uid.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// Why a subject or its alternative names name nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HolderError {
    #[error("it cannot be read: {0}")]
    Malformed(String),
    #[error("the subject has no common name")]
    NoCommonName,
    #[error("the subject has {0} common names: one is allowed")]
    CommonNames(usize),
    #[error("the subject's {0} is no text, or an empty one")]
    Text(&'static str),
    #[error("expected 1 UID, but found multiple")]
    Uids,
    #[error("there are {0} lists of alternative names: one is allowed")]
    NameLists(usize),
    #[error("an alternative IP address has {0} octets")]
    Address(usize),
}

/// An alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    Dns(String),
    Ip(IpAddr),
    Email(String),
    Uri(String),
    /// Of another kind: nobody here reads it, and no signer passes it on.
    Other,
}

/// Whom a certificate is for, or is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    common_name: Option<String>,
    /// Groups, to Kubernetes.
    pub organizations: Vec<String>,
    /// Empty without the attribute.
    pub uid: String,
    pub names: Vec<Name>,
}

impl Holder {
    /// Of a certificate in DER, with nothing behind it.
    pub fn of_certificate(der: &[u8]) -> Result<Self, HolderError> {
        let (rest, certificate) = X509Certificate::from_der(der).map_err(malformed)?;
        nothing(rest)?;
        Self::of_parsed(&certificate)
    }

    /// Of a certificate that has been parsed already.
    pub fn of_parsed(certificate: &X509Certificate<'_>) -> Result<Self, HolderError> {
        let extensions = certificate.extensions().iter().map(|e| e.parsed_extension());
        Self::read(certificate.subject(), extensions)
    }

    /// Of a request (PKCS#10) in DER, with nothing behind it.
    pub fn of_request(der: &[u8]) -> Result<Self, HolderError> {
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(malformed)?;
        nothing(rest)?;
        let extensions = request.requested_extensions().into_iter().flatten();
        Self::read(&request.certification_request_info.subject, extensions)
    }

    /// The user, to Kubernetes.
    pub fn common_name(&self) -> Result<&str, HolderError> {
        self.common_name.as_deref().ok_or(HolderError::NoCommonName)
    }

    fn read<'e, 'a: 'e>(
        subject: &X509Name<'_>,
        extensions: impl Iterator<Item = &'e ParsedExtension<'a>>,
    ) -> Result<Self, HolderError> {
        Ok(Self {
            common_name: common_name(subject)?,
            organizations: subject
                .iter_organization()
                .map(|o| text(o, "organization"))
                .collect::<Result<_, _>>()?,
            uid: uid(subject)?,
            names: names(extensions)?,
        })
    }
}

fn malformed(error: impl std::fmt::Display) -> HolderError {
    HolderError::Malformed(error.to_string())
}

fn nothing(rest: &[u8]) -> Result<(), HolderError> {
    if rest.is_empty() { Ok(()) } else { Err(HolderError::Malformed("trailing data".to_owned())) }
}

fn text(attribute: &AttributeTypeAndValue<'_>, what: &'static str) -> Result<String, HolderError> {
    match attribute.as_str() {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => Ok(text.to_owned()),
        _ => Err(HolderError::Text(what)),
    }
}

fn common_name(subject: &X509Name<'_>) -> Result<Option<String>, HolderError> {
    match subject.iter_common_name().collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [only] => text(only, "common name").map(Some),
        several => Err(HolderError::CommonNames(several.len())),
    }
}

fn uid(subject: &X509Name<'_>) -> Result<String, HolderError> {
    let mut found = subject.iter_attributes().filter(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE);
    let Some(first) = found.next() else { return Ok(String::new()) };
    if found.next().is_some() { Err(HolderError::Uids) } else { text(first, "UID") }
}

fn names<'e, 'a: 'e>(
    extensions: impl Iterator<Item = &'e ParsedExtension<'a>>,
) -> Result<Vec<Name>, HolderError> {
    let lists = extensions.filter_map(|extension| match extension {
        ParsedExtension::SubjectAlternativeName(list) => Some(list.general_names.as_slice()),
        _ => None,
    });
    match lists.collect::<Vec<_>>().as_slice() {
        [] => Ok(Vec::new()),
        [only] => only.iter().map(name).collect(),
        several => Err(HolderError::NameLists(several.len())),
    }
}

fn name(name: &GeneralName<'_>) -> Result<Name, HolderError> {
    match name {
        GeneralName::DNSName(name) => Ok(Name::Dns((*name).to_owned())),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            ip.map(Name::Ip).map_err(|_| HolderError::Address(octets.len()))
        }
        GeneralName::RFC822Name(name) => Ok(Name::Email((*name).to_owned())),
        GeneralName::URI(name) => Ok(Name::Uri((*name).to_owned())),
        _ => Ok(Name::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    fn params(subject: &[(DnType, DnValue)]) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params
    }

    /// Read as a certificate and as a request, which must agree.
    fn read(params: &CertificateParams) -> Result<Holder, HolderError> {
        let key = KeyPair::generate().unwrap();
        let certificate = Holder::of_certificate(params.self_signed(&key).unwrap().der());
        let request = Holder::of_request(params.serialize_request(&key).unwrap().der());
        assert_eq!(certificate, request);
        certificate
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    /// The maker of requests keeps one attribute of each type; the second type here has the first one's number.
    fn two_names(first: &str, second: &str) -> CertificateParams {
        let again = DnType::CustomDnType(vec![2, 5, 4, 3]);
        params(&[(DnType::CommonName, utf8(first)), (again, utf8(second))])
    }

    #[test]
    fn a_holder_is_a_user_with_groups_and_names() {
        let mut params = params(&[
            (DnType::OrganizationName, utf8("dev")),
            (DnType::CommonName, utf8("jane")),
            (DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]), utf8("8d1f")),
        ]);
        let uri = "spiffe://a/b".try_into().unwrap();
        params.subject_alt_names = vec![
            SanType::DnsName("n1".try_into().unwrap()),
            SanType::IpAddress([192, 0, 2, 1].into()),
            SanType::Rfc822Name("a@b".try_into().unwrap()),
            SanType::URI(uri),
        ];
        let holder = read(&params).unwrap();
        assert_eq!((holder.common_name(), holder.uid.as_str()), (Ok("jane"), "8d1f"));
        assert_eq!(holder.organizations, ["dev"]);
        let names = [
            Name::Dns("n1".to_owned()),
            Name::Ip([192, 0, 2, 1].into()),
            Name::Email("a@b".to_owned()),
            Name::Uri("spiffe://a/b".to_owned()),
        ];
        assert_eq!(holder.names, names);
    }

    #[test]
    fn a_subject_that_could_be_read_in_two_ways_names_nobody() {
        for (first, second) in [("system:node:x", "admin"), ("admin", "system:node:x"), ("a", "a")] {
            assert_eq!(read(&two_names(first, second)), Err(HolderError::CommonNames(2)));
        }
        assert_eq!(read(&params(&[])).unwrap().common_name(), Err(HolderError::NoCommonName));
        for text in ["", "a\u{0}b", "a\nb"] {
            let common = read(&params(&[(DnType::CommonName, utf8(text))]));
            assert_eq!(common, Err(HolderError::Text("common name")), "{text:?}");
            let group = read(&params(&[(DnType::OrganizationName, utf8(text))]));
            assert_eq!(group, Err(HolderError::Text("organization")), "{text:?}");
        }
        let wide = DnValue::BmpString("admin".try_into().unwrap());
        let wide = read(&params(&[(DnType::CommonName, wide)]));
        assert_eq!(wide, Err(HolderError::Text("common name")));
    }

    #[test]
    fn odd_names_are_no_addresses() {
        // SEQUENCE { [7] 3 octets }: an address that is none.
        let list = |bytes: &[u8]| CustomExtension::from_oid_content(&[2, 5, 29, 17], bytes.to_vec());
        let mut odd = params(&[(DnType::CommonName, utf8("a"))]);
        odd.custom_extensions = vec![list(&[0x30, 5, 0x87, 3, 1, 2, 3])];
        assert_eq!(read(&odd), Err(HolderError::Address(3)));
        // [8], a registered identifier.
        odd.custom_extensions = vec![list(&[0x30, 4, 0x88, 2, 0x55, 4])];
        assert_eq!(read(&odd).map(|holder| holder.names), Ok(vec![Name::Other]));
        assert!(matches!(Holder::of_certificate(&[0x30, 0]), Err(HolderError::Malformed(_))));
    }
}
