//! Creation of keys and certificates: certificate requests, challenge certificates, and a development authority.

use crate::error::AcmeError;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

/// The domains for which a development authority may issue certificates. None of them is in the public domain name
/// system (RFC 6761, RFC 8375, RFC 6762, ICANN's reservation of `internal`).
pub const DEVELOPMENT_DOMAINS: [&str; 5] = ["localhost", "test", "local", "internal", "home.arpa"];

/// The networks for which a development authority may issue certificates: this machine, private networks (RFC 1918, RFC
/// 4193), and link-local networks (RFC 3927).
const DEVELOPMENT_NETWORKS: [(&str, u8); 8] = [
    ("127.0.0.0", 8),
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("169.254.0.0", 16),
    ("::1", 128),
    ("fc00::", 7),
    ("fe80::", 10),
];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The lifetime of a development authority.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// The lifetime of a development certificate. Apple's systems reject longer ones.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(397 * 24 * 60 * 60);

/// A private key in PEM, and either a certificate in PEM or a certificate request in DER.
pub type WithKey<T> = (String, T);

/// Creates a key, and a certificate request in DER for a host name or an IP address.
///
/// # Errors
/// If `name` is not valid.
pub fn request(name: &str) -> Result<WithKey<Vec<u8>>, AcmeError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    // The authority takes the names from the extension subjectAltName, and ignores or forbids a subject.
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((key.serialize_pem(), request.der().to_vec()))
}

/// Creates a key and the certificate that answers a TLS-ALPN-01 challenge (RFC 8737 section 3).
///
/// # Errors
/// If `name` is not valid.
pub fn challenge(name: &str, key_authorization: &str, now: SystemTime) -> Result<WithKey<String>, AcmeError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "challenge of ACME");
    (params.not_before, params.not_after) = validity(now, DAY);
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(&sha256(key_authorization.as_bytes()))];
    Ok((key.serialize_pem(), params.self_signed(&key)?.pem()))
}

/// Creates a development authority. It cannot issue certificates for names of the public internet.
///
/// # Errors
/// If the system has no random numbers.
pub fn authority(now: SystemTime) -> Result<WithKey<String>, AcmeError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(&key, now).self_signed(&key)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

/// Issues a certificate for `names`, with the key of the authority that [`authority`] created. Returns the new key and
/// the certificate.
///
/// # Errors
/// If the key is damaged, or if the authority may not certify one of the names.
pub fn issue(authority_key: &str, names: &[String], now: SystemTime) -> Result<WithKey<String>, AcmeError> {
    if let Some(name) = names.iter().find(|name| !is_for_development(name)) {
        return Err(AcmeError::new(format_args!(
            "{name} is not a name of development: those are addresses of private networks, and names at and below {}",
            DEVELOPMENT_DOMAINS.join(", ")
        )));
    }
    let authority_key = KeyPair::from_pem(authority_key)?;
    let issuer = Issuer::new(authority_params(&authority_key, now), authority_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("localhost", |name| &name[..]));
    (params.not_before, params.not_after) = validity(now, CERTIFICATE_LIFETIME);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((key.serialize_pem(), certificate.pem()))
}

/// Returns true if a development authority may certify the name.
#[must_use]
pub fn is_for_development(name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return DEVELOPMENT_NETWORKS.iter().any(|&(network, bits)| contains(network, bits, address));
    }
    let name = name.strip_prefix("*.").unwrap_or(name).to_ascii_lowercase();
    let is_below = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    DEVELOPMENT_DOMAINS.iter().any(|domain| is_below(domain))
}

fn contains(network: &str, bits: u8, address: IpAddr) -> bool {
    let shifted = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()).checked_shr(32 - u32::from(bits)),
        IpAddr::V6(address) => address.to_bits().checked_shr(128 - u32::from(bits)),
    };
    let network: IpAddr = network.parse().expect("the networks are constants");
    network.is_ipv4() == address.is_ipv4() && shifted(network) == shifted(address)
}

/// Returns the parameters of the authority with this key. Its name is derived from the key, so that the key alone
/// suffices to issue certificates.
fn authority_params(key: &KeyPair, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    let identifier = params.key_identifier(key);
    let identifier = u32::from_be_bytes(*identifier.first_chunk().expect("the identifier is the begin of a hash"));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Kirsch development authority {identifier:08x}"));
    (params.not_before, params.not_after) = validity(now, AUTHORITY_LIFETIME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let domains = DEVELOPMENT_DOMAINS.iter().map(|domain| GeneralSubtree::DnsName((*domain).to_owned()));
    let networks = DEVELOPMENT_NETWORKS.iter().map(|&(network, bits)| {
        let address = network.parse().expect("the networks are constants");
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, bits))
    });
    let permitted_subtrees = domains.chain(networks).collect();
    params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    params
}

/// Returns the validity period of a new certificate. It starts an hour early, for clients whose clocks are slow.
fn validity(now: SystemTime, lifetime: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let begin = now - Duration::from_secs(60 * 60);
    (OffsetDateTime::from(begin), OffsetDateTime::from(begin + lifetime))
}

/// Returns the SHA-256 hash of a text.
fn sha256(text: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    #[cfg(feature = "aws-lc")]
    hash.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text).as_ref());
    #[cfg(not(feature = "aws-lc"))]
    hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_public_internet_are_not_for_development() {
        for name in ["localhost", "shop.localhost", "*.test", "Nas.Local", "127.0.0.1", "::1", "192.168.7.7", "fe80::1"]
        {
            assert!(is_for_development(name), "{name}");
        }
        for name in ["example.org", "nottest", "latest", "test.example", "8.8.8.8", "172.32.0.1", "2001:db8::1", ""] {
            assert!(!is_for_development(name), "{name}");
        }
    }

    #[test]
    fn an_authority_issues_nothing_for_other_names() {
        let (key, _) = authority(SystemTime::UNIX_EPOCH + DAY).unwrap();
        let error = issue(&key, &["localhost".to_owned(), "example.org".to_owned()], SystemTime::UNIX_EPOCH + DAY);
        assert!(error.unwrap_err().text.starts_with("example.org is not a name of development"));
    }
}
