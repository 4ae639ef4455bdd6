//! The description of a certificate for its owner.

use rustls::pki_types::CertificateDer;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use x509_cert::Certificate;
use x509_cert::der::asn1::{ObjectIdentifier, UintRef};
use x509_cert::der::{self, Decode, Encode, Reader, SliceReader};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::Time;

const SERVER_AUTHENTICATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const ANY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");

/// The object identifiers of public key algorithms, and their names.
const KEY_KINDS: [(&str, &str); 10] = [
    ("1.2.840.113549.1.1.1", "RSA"),
    ("1.2.840.113549.1.1.10", "RSA-PSS"),
    ("1.2.840.10045.2.1", "EC"),
    ("1.3.101.112", "Ed25519"),
    ("1.3.101.113", "Ed448"),
    ("1.2.840.10040.4.1", "DSA"),
    ("2.16.840.1.101.3.4.3.17", "ML-DSA-44"),
    ("2.16.840.1.101.3.4.3.18", "ML-DSA-65"),
    ("2.16.840.1.101.3.4.3.19", "ML-DSA-87"),
    ("1.2.156.10197.1.301", "SM2"),
];
const CURVES: [(&str, &str); 4] = [
    ("1.2.840.10045.3.1.7", "P-256"),
    ("1.3.132.0.34", "P-384"),
    ("1.3.132.0.35", "P-521"),
    ("1.3.132.0.10", "secp256k1"),
];

/// The description of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The names for which the certificate is valid, in lower case: host names, `*.example.org`, IP addresses.
    pub names: Vec<String>,
    /// The subject in the format of RFC 4514.
    pub subject: String,
    /// The issuer in the format of RFC 4514.
    pub issuer: String,
    /// The serial number in hexadecimal digits.
    pub serial: String,
    /// The kind of the public key, such as `EC P-256` or `RSA 2048`.
    pub key: String,
    /// The start of the validity period: Unix time in seconds.
    pub not_before: u64,
    /// The end of the validity period: Unix time in seconds.
    pub not_after: u64,
}

/// A parsed certificate.
pub(crate) struct Parsed(Certificate);

impl Parsed {
    /// Parses a certificate.
    ///
    /// # Errors
    /// If the certificate is damaged.
    pub(crate) fn new(certificate: &CertificateDer<'_>) -> Result<Self, der::Error> {
        Certificate::from_der(certificate).map(Self)
    }

    pub(crate) fn describe(&self) -> Description {
        let certificate = self.0.tbs_certificate();
        let seconds = |time: Time| time.to_unix_duration().as_secs();
        let mut serial = String::new();
        for byte in certificate.serial_number().as_bytes() {
            write!(serial, "{byte:02X}").expect("a String takes everything");
        }
        Description {
            names: self.names(),
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial,
            key: key_kind(certificate.subject_public_key_info()),
            not_before: seconds(certificate.validity().not_before),
            not_after: seconds(certificate.validity().not_after),
        }
    }

    /// Returns the names in the extension subjectAltName. Clients ignore the common name.
    fn names(&self) -> Vec<String> {
        let Ok(Some((_, SubjectAltName(names)))) = self.0.tbs_certificate().get_extension::<SubjectAltName>() else {
            return Vec::new();
        };
        let text = |name: &GeneralName| match name {
            GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
            GeneralName::IpAddress(address) => match *address.as_bytes() {
                [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).to_string()),
                ref bytes => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string()),
            },
            _ => None,
        };
        names.iter().filter_map(text).collect()
    }

    /// Returns true if the extended key usage allows TLS servers.
    pub(crate) fn is_for_servers(&self) -> bool {
        match self.0.tbs_certificate().get_extension::<ExtendedKeyUsage>() {
            Ok(Some((_, usage))) => usage.0.iter().any(|each| [SERVER_AUTHENTICATION, ANY_USAGE].contains(each)),
            _ => true,
        }
    }

    /// Returns true if the issuer's name is the subject of `issuer`.
    pub(crate) fn is_issued_by(&self, issuer: &Self) -> bool {
        self.0.tbs_certificate().issuer() == issuer.0.tbs_certificate().subject()
    }

    pub(crate) fn subject(&self) -> String {
        self.0.tbs_certificate().subject().to_string()
    }

    pub(crate) fn not_before(&self) -> Time {
        self.0.tbs_certificate().validity().not_before
    }

    pub(crate) fn not_after(&self) -> Time {
        self.0.tbs_certificate().validity().not_after
    }

    /// Returns the kind of the certificate's key.
    pub(crate) fn key_kind(&self) -> String {
        key_kind(self.0.tbs_certificate().subject_public_key_info())
    }

    /// Returns true if `other` is the certificate's public key. `other` is in DER.
    pub(crate) fn has_key(&self, other: &[u8]) -> bool {
        let own = self.0.tbs_certificate().subject_public_key_info();
        // RSA's algorithm parameters have two valid encodings, so only the identifier and the key are compared.
        SubjectPublicKeyInfoOwned::from_der(other).is_ok_and(|other| {
            own.algorithm.oid == other.algorithm.oid && own.subject_public_key == other.subject_public_key
        })
    }
}

/// Returns the kind of a public key in DER, such as `RSA 2048`.
pub(crate) fn kind_of_key(info: &[u8]) -> String {
    SubjectPublicKeyInfoOwned::from_der(info).map_or_else(|_| "unknown".to_owned(), |info| key_kind(&info))
}

fn key_kind(info: &SubjectPublicKeyInfoOwned) -> String {
    let identifier = info.algorithm.oid.to_string();
    let named = KEY_KINDS.iter().find(|(known, _)| *known == identifier).map(|(_, name)| *name);
    match named {
        Some("RSA") => format!("RSA {}", rsa_bits(info.subject_public_key.raw_bytes()).unwrap_or(0)),
        Some("EC") => format!("EC {}", curve(info)),
        Some(name) => name.to_owned(),
        None => identifier,
    }
}

fn curve(info: &SubjectPublicKeyInfoOwned) -> String {
    let parameters = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.to_der().ok());
    let Some(identifier) = parameters.and_then(|der| <ObjectIdentifier>::from_der(&der).ok()) else {
        return "of an own curve".to_owned();
    };
    let identifier = identifier.to_string();
    CURVES.iter().find(|(known, _)| *known == identifier).map_or(identifier.clone(), |(_, name)| (*name).to_owned())
}

/// Returns the length of an RSA modulus (RFC 8017, appendix A.1.1) in bits.
fn rsa_bits(key: &[u8]) -> Result<usize, der::Error> {
    let mut reader = SliceReader::new(key)?;
    let modulus = reader.sequence(|reader| -> Result<_, der::Error> {
        let modulus = UintRef::decode(reader)?;
        UintRef::decode(reader)?;
        Ok(modulus)
    })?;
    let first = modulus.as_bytes().first().copied().unwrap_or(0);
    Ok((modulus.as_bytes().len() * 8).saturating_sub(first.leading_zeros() as usize))
}
