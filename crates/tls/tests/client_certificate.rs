//! The certificate of a client, as applications see it.

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType, SerialNumber};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tls::{ClientCertificate, certificate_pem};

fn made(name: DistinguishedName, change: impl Fn(&mut CertificateParams)) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    change(&mut params);
    let key = KeyPair::generate().expect("a key can be made");
    params.self_signed(&key).expect("a certificate can be made").der().clone()
}

fn named(parts: &[(DnType, DnValue)]) -> ClientCertificate {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), value.clone());
    }
    ClientCertificate::parse(&made(name, |_| ())).expect("it is one")
}

fn text(value: &str) -> DnValue {
    DnValue::Utf8String(value.to_owned())
}

#[test]
fn name_is_written_from_its_end_with_what_is_special_escaped() {
    let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
    let own = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 99999, 1]);
    let certificate = named(&[
        (DnType::CountryName, text("DE")),
        (DnType::OrganizationName, text("Müller, Söhne \"+\" <Co>; \\")),
        (DnType::OrganizationalUnitName, text("#1 = first")),
        (DnType::LocalityName, text(" edge ")),
        (own, text("a")),
        (email, DnValue::Ia5String("a@example.org".try_into().expect("it is ASCII"))),
        (DnType::CommonName, text("line\nend\u{7f}")),
    ]);
    let subject = certificate.subject();
    assert_eq!(
        subject.rfc2253(),
        "CN=line\\0Aend\\7F,emailAddress=a@example.org,1.3.6.1.4.1.99999.1=#0C0161,L=\\ edge\\ ,OU=\\#1 = first,\
         O=Müller\\, Söhne \\\"\\+\\\" \\<Co\\>\\; \\\\,C=DE"
    );
    assert_eq!(
        subject.rfc4514(),
        "CN=line\\0Aend\\7F,1.2.840.113549.1.9.1=#160D61406578616D706C652E6F7267,1.3.6.1.4.1.99999.1=#0C0161,\
         L=\\ edge\\ ,OU=\\#1 = first,O=Müller\\, Söhne \\\"\\+\\\" \\<Co\\>\\; \\\\,C=DE"
    );
    let attributes = subject.attributes();
    let expected = [
        ("C", "DE"),
        ("O", "Müller, Söhne \"+\" <Co>; \\\\"),
        ("OU", "#1 = first"),
        ("L", " edge "),
        ("Email", "a@example.org"),
        ("CN", "line\\0Aend\\7F"),
    ];
    assert_eq!(attributes, expected.map(|(kind, value)| (kind, value.to_owned())));
}

#[test]
fn text_of_old_encodings_is_read() {
    let certificate = named(&[
        (DnType::OrganizationName, DnValue::BmpString("Ελ".try_into().expect("it is in the plane"))),
        (DnType::CommonName, DnValue::TeletexString("old".try_into().expect("it is ASCII"))),
    ]);
    assert_eq!(certificate.subject().rfc2253(), "CN=old,O=Ελ");
    let empty = named(&[]);
    assert_eq!((empty.subject().rfc2253().as_str(), empty.subject().attributes().len()), ("", 0));
}

#[test]
fn numbers_dates_and_names_have_the_form_of_openssl() {
    let der = made(DistinguishedName::new(), |params| {
        params.serial_number = Some(SerialNumber::from(vec![0x80, 0x0a, 0xff]));
        params.not_before = rcgen::date_time_ymd(2026, 1, 2);
        params.not_after = rcgen::date_time_ymd(2051, 12, 31);
        params.subject_alt_names = vec![
            SanType::DnsName("a.example".try_into().expect("it is ASCII")),
            SanType::Rfc822Name("somebody@example.org".try_into().expect("it is ASCII")),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ];
    });
    let certificate = ClientCertificate::parse(&der).expect("it is one");
    assert_eq!((certificate.version(), certificate.serial().as_str()), (3, "800AFF"));
    assert_eq!(certificate.begin(), "Jan  2 00:00:00 2026 GMT");
    assert_eq!(certificate.end(), "Dec 31 00:00:00 2051 GMT");
    let names = (vec!["a.example".to_owned()], vec!["somebody@example.org".to_owned()]);
    assert_eq!(certificate.alternative_names(), names);
    let pem = certificate_pem(&der);
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n") && pem.ends_with("\n-----END CERTIFICATE-----\n"));
    assert!(pem.lines().all(|line| line.len() <= 64));
    assert_eq!(CertificateDer::from_pem_slice(pem.as_bytes()).expect("it is PEM"), der);
}

#[test]
fn damaged_certificate_and_one_with_strange_extensions_do_not_fail() {
    let strange = made(DistinguishedName::new(), |params| {
        let identifier = [2, 5, 29, 17];
        params.custom_extensions = vec![CustomExtension::from_oid_content(&identifier, b"no names".to_vec())];
    });
    let certificate = ClientCertificate::parse(&strange).expect("its names alone are damaged");
    assert_eq!(certificate.alternative_names(), (Vec::new(), Vec::new()));
    for cut in 0..strange.len() {
        assert!(ClientCertificate::parse(&strange[..cut]).is_err());
        let mut changed = strange.to_vec();
        changed[cut] ^= 0x55;
        if let Ok(certificate) = ClientCertificate::parse(&changed) {
            let (subject, issuer) = (certificate.subject(), certificate.issuer());
            let texts = [subject.rfc2253(), issuer.rfc4514(), certificate.begin(), certificate.serial()];
            assert!(texts.iter().all(|text| !text.contains('\0')));
            let (_, _) = (subject.attributes(), certificate.alternative_names());
        }
    }
}
