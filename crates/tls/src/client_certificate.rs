//! The certificate of a client, as applications see it.

use crate::distinguished_name::DistinguishedName;
use std::fmt::Write as _;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{self, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A certificate that a client presented and whose chain was verified.
///
/// Private authorities issue certificates that break rules of RFC 5280, such as the maximum length of serial numbers.
/// These rules are not checked, because the certificate has already been accepted.
#[derive(Debug)]
pub struct ClientCertificate(CertificateInner<Raw>);

impl ClientCertificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// If the certificate is damaged.
    pub fn parse(certificate: &[u8]) -> Result<Self, der::Error> {
        CertificateInner::from_der(certificate).map(Self)
    }

    /// Returns the subject: the name of the client.
    #[must_use]
    pub fn subject(&self) -> DistinguishedName<'_> {
        DistinguishedName(self.0.tbs_certificate().subject())
    }

    /// Returns the issuer: the name of the authority.
    #[must_use]
    pub fn issuer(&self) -> DistinguishedName<'_> {
        DistinguishedName(self.0.tbs_certificate().issuer())
    }

    /// Returns the X.509 version: 3, or 1 for old certificates.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.0.tbs_certificate().version() as u8 + 1
    }

    /// Returns the serial number in hexadecimal digits.
    #[must_use]
    pub fn serial(&self) -> String {
        let bytes = self.0.tbs_certificate().serial_number().as_bytes();
        // In DER, a zero byte precedes a number whose first bit is set.
        let digits = bytes.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(bytes);
        digits.iter().fold(String::new(), |mut serial, byte| {
            write!(serial, "{byte:02X}").expect("a String takes everything");
            serial
        })
    }

    /// Returns the start of the validity period, in the format of OpenSSL and `mod_ssl`.
    #[must_use]
    pub fn begin(&self) -> String {
        date(self.0.tbs_certificate().validity().not_before)
    }

    /// Returns the end of the validity period, in the format of OpenSSL and `mod_ssl`.
    #[must_use]
    pub fn end(&self) -> String {
        date(self.0.tbs_certificate().validity().not_after)
    }

    /// Returns the host names and the e-mail addresses in the extension subjectAltName.
    #[must_use]
    pub fn alternative_names(&self) -> (Vec<String>, Vec<String>) {
        let (mut hosts, mut addresses) = (Vec::new(), Vec::new());
        if let Ok(Some((_, SubjectAltName(names)))) = self.0.tbs_certificate().get_extension::<SubjectAltName>() {
            for name in names {
                match name {
                    GeneralName::DnsName(name) => hosts.push(name.as_str().to_owned()),
                    GeneralName::Rfc822Name(name) => addresses.push(name.as_str().to_owned()),
                    _ => {}
                }
            }
        }
        (hosts, addresses)
    }
}

fn date(time: Time) -> String {
    let time = time.to_date_time();
    let month = MONTHS[usize::from(time.month()) - 1];
    let (day, hour, minutes, seconds) = (time.day(), time.hour(), time.minutes(), time.seconds());
    format!("{month} {day:2} {hour:02}:{minutes:02}:{seconds:02} {} GMT", time.year())
}

/// Returns a certificate in PEM, with a newline at the end.
#[must_use]
pub fn certificate_pem(certificate: &[u8]) -> String {
    // This fails only for lengths that no certificate has.
    der::pem::encode_string("CERTIFICATE", LineEnding::LF, certificate).unwrap_or_default()
}
