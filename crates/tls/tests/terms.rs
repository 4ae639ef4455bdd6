//! Certificates, keys and terms of clients: what is refused, with which words, and what a client gets.

use rcgen::{BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyPair};
use rustls::HandshakeKind::{Full, Resumed};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, RootCertStore, ServerConnection, SignatureScheme,
    SupportedProtocolVersion,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tls::{Agreed, CertificateFiles, ClientCertificates, ClientTerms, MinimumVersion, Source, Terms, TicketSecrets};

#[cfg(feature = "aws-lc")]
use rustls::crypto::aws_lc_rs::default_provider as provider;
#[cfg(not(feature = "aws-lc"))]
use rustls::crypto::ring::default_provider as provider;

/// An authority that issues certificates for the tests.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A certificate and its key.
struct Made {
    pem: String,
    key: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs()
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("a certificate can be made");
        Self { pem: certificate.pem(), certificate: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn issue(&self, names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm) -> Made {
        self.issue_with(names, algorithm, |_| ())
    }

    fn issue_with(
        &self,
        names: &[&str],
        algorithm: &'static rcgen::SignatureAlgorithm,
        change: impl Fn(&mut CertificateParams),
    ) -> Made {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are names");
        params.distinguished_name.push(DnType::CommonName, "leaf");
        change(&mut params);
        let key = KeyPair::generate_for(algorithm).expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be made");
        Made {
            pem: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

fn source(path: &str, content: impl AsRef<[u8]>) -> Source {
    Source { path: path.to_owned(), content: content.as_ref().to_vec() }
}

fn files(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> CertificateFiles {
    CertificateFiles {
        chain: source("cert.pem", chain),
        key: source("key.pem", key),
        password: None,
        names: Vec::new(),
        is_challenge: false,
    }
}

fn terms(certificates: Vec<CertificateFiles>) -> Terms {
    Terms {
        certificates,
        minimum_version: MinimumVersion::default(),
        cipher_suites: String::new(),
        protocols: vec![b"http/1.1".to_vec()],
        clients: ClientTerms::default(),
        tickets: TicketSecrets(vec![[7; 32]]),
    }
}

fn agree(terms: &Terms) -> Agreed {
    terms.agree(now()).expect("the terms are right")
}

/// The one mistake of a certificate and a key.
fn mistake(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> String {
    let mut mistakes = terms(vec![files(chain, key)]).agree(now()).expect_err("there is a mistake");
    assert_eq!(mistakes.len(), 1);
    let mistake = mistakes.remove(0).to_string();
    assert!(!mistake.contains('\n'), "{mistake}");
    mistake
}

fn client_config(authority: &Authority, own: Option<&Made>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).expect("it is one");
    let builder = ClientConfig::builder().with_root_certificates(roots);
    match own {
        None => builder.with_no_client_auth(),
        Some(made) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.key_der.clone()));
            builder.with_client_auth_cert(vec![made.der.clone()], key).expect("it fits")
        }
    }
}

/// The ends of a handshake in memory.
fn shake_hands(
    config: rustls::ServerConfig,
    client: Arc<ClientConfig>,
    name: &str,
) -> Result<(ServerConnection, ClientConnection), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(Arc::new(config))?;
    for _ in 0..4 {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut to_server).expect("memory can be written");
        }
        let mut rest = &to_server[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory can be read");
            server.process_new_packets()?;
        }
        while server.wants_write() {
            server.write_tls(&mut to_client).expect("memory can be written");
        }
        let mut rest = &to_client[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory can be read");
            client.process_new_packets()?;
        }
    }
    Ok((server, client))
}

/// The certificate that a client gets.
fn presented(config: rustls::ServerConfig, client: ClientConfig, name: &str) -> CertificateDer<'static> {
    let (_, client) = shake_hands(config, Arc::new(client), name).expect("the handshake succeeds");
    client.peer_certificates().expect("there is one")[0].clone().into_owned()
}

#[test]
fn certificate_is_chosen_by_server_name_and_the_first_one_is_the_default() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let first = authority.issue(&["one.example", "other.example", "a.b.wild.example"], ec);
    let second = authority.issue(&["two.example"], ec);
    let wild = authority.issue(&["*.wild.example"], ec);
    let made = [&first, &second, &wild];
    let terms = terms(made.iter().map(|made| files(&made.pem, &made.key)).collect());
    let expected = [
        ("one.example", &first),
        ("TWO.example", &second),
        ("any.wild.example", &wild),
        ("other.example", &first),
        // A star stands for one label.
        ("a.b.wild.example", &first),
    ];
    for (name, expected) in expected {
        assert!(presented(agree(&terms).config, client_config(&authority, None), name) == expected.der, "{name}");
    }
    // Names of the settings take the place of those of the certificate.
    let mut moved = terms.clone();
    moved.certificates[0].names = vec!["one.example".to_owned()];
    moved.certificates[1].names = vec!["Other.Example".to_owned()];
    let error = shake_hands(agree(&moved).config, Arc::new(client_config(&authority, None)), "other.example");
    assert!(error.is_err(), "two.example is presented, and the client does not accept it");
    assert_eq!(agree(&moved).identities[1].names, ["other.example"]);
}

/// Returns the cryptography of a client that prefers the signatures of `preferred`, and knows all others.
fn preferring(preferred: SignatureScheme) -> CryptoProvider {
    let mut provider = provider();
    let mut sorted = provider.signature_verification_algorithms.mapping.to_vec();
    sorted.sort_by_key(|(scheme, _)| *scheme != preferred);
    provider.signature_verification_algorithms.mapping = Vec::leak(sorted);
    provider
}

/// The kinds of keys that can be used: how to make one, its name, and with which scheme it signs.
fn kinds_of_keys() -> Vec<(&'static rcgen::SignatureAlgorithm, &'static str, SignatureScheme)> {
    vec![
        (&rcgen::PKCS_ECDSA_P256_SHA256, "EC P-256", SignatureScheme::ECDSA_NISTP256_SHA256),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "EC P-384", SignatureScheme::ECDSA_NISTP384_SHA384),
        (&rcgen::PKCS_ED25519, "Ed25519", SignatureScheme::ED25519),
        (&rcgen::PKCS_RSA_SHA256, "RSA 2048", SignatureScheme::RSA_PSS_SHA256),
        #[cfg(feature = "aws-lc")]
        (&rcgen::PKCS_ML_DSA_44, "ML-DSA-44", SignatureScheme::ML_DSA_44),
        #[cfg(feature = "aws-lc")]
        (&rcgen::PKCS_ML_DSA_65, "ML-DSA-65", SignatureScheme::ML_DSA_65),
        #[cfg(feature = "aws-lc")]
        (&rcgen::PKCS_ML_DSA_87, "ML-DSA-87", SignatureScheme::ML_DSA_87),
    ]
}

#[test]
fn key_is_chosen_by_the_clients_order_of_signatures() {
    let authority = Authority::new("authority");
    let kinds = kinds_of_keys();
    let made: Vec<_> = kinds.iter().map(|(algorithm, ..)| authority.issue(&["one.example"], algorithm)).collect();
    let terms = terms(made.iter().map(|made| files(&made.pem, &made.key)).collect());
    let found: Vec<_> = agree(&terms).identities.iter().map(|one| one.description.key.clone()).collect();
    assert_eq!(found, kinds.iter().map(|(_, name, _)| *name).collect::<Vec<_>>());
    for (chosen, (_, name, scheme)) in made.iter().zip(kinds) {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).expect("it is one");
        let with = |versions: &[&'static SupportedProtocolVersion]| {
            let mut provider = preferring(scheme);
            // The client of rustls offers the cipher suites of versions that it does not speak. Then rustls would choose
            // ML-DSA for TLS 1.2 if it were the first, and fail.
            provider.cipher_suites.retain(|suite| versions.contains(&suite.version()));
            ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(versions)
                .expect("it has suites")
                .with_root_certificates(roots.clone())
                .with_no_client_auth()
        };
        let both = with(&[&rustls::version::TLS13, &rustls::version::TLS12]);
        assert!(presented(agree(&terms).config, both, "one.example") == chosen.der, "{name}");
        // TLS 1.2 has no ML-DSA, so that such a client gets another one.
        let old = presented(agree(&terms).config, with(&[&rustls::version::TLS12]), "one.example");
        assert_eq!(old == chosen.der, !name.starts_with("ML-DSA"), "{name} in TLS 1.2");
    }
}

fn terms_of(made: &Made) -> Terms {
    terms(vec![files(&made.pem, &made.key)])
}

#[test]
fn post_quantum_key_exchange_comes_first_and_old_versions_can_be_refused() {
    let authority = Authority::new("authority");
    let made = authority.issue(&["one.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut terms = terms_of(&made);
    let client = Arc::new(client_config(&authority, None));
    let (server, _) = shake_hands(agree(&terms).config, client, "one.example").expect("it succeeds");
    let group = server.negotiated_key_exchange_group().expect("there is one").name();
    let hybrid = if cfg!(feature = "aws-lc") { NamedGroup::X25519MLKEM768 } else { NamedGroup::X25519 };
    assert_eq!(group, hybrid);
    let old = |terms: &Terms| {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).expect("it is one");
        let client = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS12])
            .with_root_certificates(roots)
            .with_no_client_auth();
        shake_hands(agree(terms).config, Arc::new(client), "one.example").map(|(server, _)| server.protocol_version())
    };
    assert_eq!(old(&terms), Ok(Some(ProtocolVersion::TLSv1_2)));
    terms.minimum_version = MinimumVersion::Tls13;
    assert!(old(&terms).is_err());
}

#[test]
fn cipher_suites_have_the_names_of_openssl_and_of_iana() {
    let made = Authority::new("authority").issue(&["one.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut terms = terms_of(&made);
    let chosen = |names: &str, terms: &mut Terms| {
        terms.cipher_suites = names.to_owned();
        terms.agree(now()).map(|agreed| {
            let suites = agreed.config.crypto_provider().cipher_suites.clone();
            let suites: Vec<_> = suites.iter().map(|suite| suite.suite().as_str().unwrap_or_default()).collect();
            (suites.join(" "), agreed.warnings)
        })
    };
    let (suites, warnings) =
        chosen("ECDHE-ECDSA-AES256-GCM-SHA384:TLS_AES_128_GCM_SHA256", &mut terms).expect("both are known");
    assert_eq!(
        (suites.as_str(), warnings.len()),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 TLS13_AES_128_GCM_SHA256", 0)
    );
    let (suites, warnings) =
        chosen("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,AES128-SHA", &mut terms).expect("one is known");
    assert!(suites.starts_with("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 TLS13_"), "{suites}");
    assert_eq!(warnings, ["--ciphers: AES128-SHA is not supported, and left out"]);
    let mistakes = chosen("HIGH:!aNULL", &mut terms).expect_err("these are none");
    assert!(mistakes[0].to_string().contains("names no cipher suite that there is; write some of"), "{mistakes:?}");
}

#[test]
fn files_that_are_something_else_are_explained_with_the_command_that_mends_them() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let made = authority.issue(&["one.example"], ec);
    let other = authority.issue(&["one.example"], &rcgen::PKCS_RSA_SHA256);
    let both = format!("{}{}", made.pem, made.key);
    assert!(terms(vec![files(&both, &both)]).agree(now()).is_ok(), "one file may hold both");
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    let public = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let pkcs12 =
        [&[0x30, 0x82, 0x0a, 0x4e, 0x02, 0x01, 0x03, 0x30, 0x82, 0x0a, 0x04][..], PKCS7_TYPE, &[0xa0]].concat();
    let foreign = Authority::new("foreign");
    let wrong_order = format!("{}{}", authority.pem, made.pem);
    let unrelated = format!("{}{}", made.pem, foreign.pem);
    let cases: [(Vec<u8>, Vec<u8>, &str); 14] = [
        (
            made.key.clone().into(),
            made.key.clone().into(),
            "cert.pem: this is a private key, and a certificate is wanted",
        ),
        (made.pem.clone().into(), made.pem.clone().into(), "key.pem: this is a certificate without a private key"),
        (made.pem.clone().into(), public.into(), "key.pem: this is a public key"),
        (request.into(), made.key.clone().into(), "cert.pem: this is a request for a certificate"),
        (made.der.to_vec(), made.key.clone().into(), "openssl x509 -inform der -in cert.pem -out cert.pem.pem"),
        (made.pem.clone().into(), made.key_der.clone(), "openssl pkey -inform der -in key.pem -out key.pem.pem"),
        (pkcs12.clone(), made.key.clone().into(), "openssl pkcs12 -in cert.pem -noenc"),
        (Vec::new(), made.key.clone().into(), "cert.pem: there is no certificate in it: it is empty"),
        (b"hello\n".to_vec(), made.key.clone().into(), "cert.pem: there is no certificate in it; a PEM file begins"),
        (made.pem.clone().into(), b"hello".to_vec(), "key.pem: there is no private key in it; a PEM file begins"),
        (made.pem.clone().into(), old.into(), "openssl pkcs8 -topk8 -in key.pem"),
        (
            made.pem.clone().into(),
            other.key.clone().into(),
            "key.pem: the key (RSA 2048) is not that of the certificate cert.pem (EC P-256); openssl pkey",
        ),
        (
            wrong_order.into(),
            made.key.clone().into(),
            "cert.pem: the order is wrong: the certificate of the key (CN=leaf) is number 2",
        ),
        (made.pem.replace("-----END", "!!!\n-----END").into(), made.key.clone().into(), "cert.pem: it is damaged"),
    ];
    for (chain, key, expected) in cases {
        let found = mistake(chain, key);
        assert!(found.contains(expected), "{found:?} has no {expected:?}");
    }
    let warnings = agree(&terms(vec![files(unrelated, &made.key)])).warnings;
    assert!(warnings[0].contains("certificate 2 (CN=foreign) has not issued certificate 1 (CN=leaf)"), "{warnings:?}");
}

/// The beginning of the content of a PKCS #12 file: the type "data".
const PKCS7_TYPE: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];

#[test]
fn all_mistakes_are_told_at_once() {
    let made = Authority::new("authority").issue(&["one.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut terms = terms(vec![files("", &made.key), files(&made.pem, "")]);
    terms.clients.certificates = ClientCertificates::Required;
    terms.cipher_suites = "NULL".to_owned();
    assert_eq!(terms.agree(now()).expect_err("there are mistakes").len(), 4);
}

#[test]
fn certificates_out_of_their_time_are_warned_of() {
    let authority = Authority::new("authority");
    let at = |shift: i64, length: u64| {
        let begin = if shift < 0 {
            SystemTime::now() - Duration::from_secs(shift.unsigned_abs())
        } else {
            SystemTime::now() + Duration::from_secs(shift.unsigned_abs())
        };
        authority.issue_with(&["one.example"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.not_before = begin.into();
            params.not_after = (begin + Duration::from_secs(length)).into();
        })
    };
    for (shift, length, expected) in
        [(-2000, 1000, Some("cert.pem: it expired at ")), (-10, 1000, None), (1000, 1000, Some("is not valid before "))]
    {
        let agreed = agree(&terms_of(&at(shift, length)));
        let found = agreed.warnings.first();
        assert_eq!(found.map(|text| text.contains(expected.unwrap_or("?"))), expected.map(|_| true), "{found:?}");
        let description = &agreed.identities[0].description;
        assert_eq!(description.not_after - description.not_before, length);
        assert!(description.not_after.abs_diff(now().saturating_add_signed(shift) + length) < 60);
    }
}

#[test]
fn clients_need_a_certificate_of_the_authority_where_one_is_required() {
    let (authority, foreign) = (Authority::new("authority"), Authority::new("foreign"));
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let made = authority.issue(&["one.example"], ec);
    let (own, others) = (authority.issue(&["client"], ec), foreign.issue(&["client"], ec));
    let mut terms = terms_of(&made);
    terms.clients.authorities = vec![source("ca.pem", &authority.pem)];
    let served = |terms: &Terms, client: Option<&Made>| {
        let client = Arc::new(client_config(&authority, client));
        shake_hands(agree(terms).config, client, "one.example")
            .map(|(server, _)| server.peer_certificates().map_or(0, <[_]>::len))
            .map_err(|error| error.to_string())
    };
    assert_eq!(served(&terms, Some(&own)), Ok(0), "none is asked for");
    terms.clients.certificates = ClientCertificates::Optional;
    assert_eq!((served(&terms, Some(&own)), served(&terms, None)), (Ok(1), Ok(0)));
    assert!(served(&terms, Some(&others)).is_err());
    terms.clients.certificates = ClientCertificates::Required;
    for (algorithm, name, _) in kinds_of_keys() {
        assert_eq!(served(&terms, Some(&authority.issue(&["client"], algorithm))), Ok(1), "{name}");
    }
    assert!(served(&terms, None).is_err() && served(&terms, Some(&others)).is_err());
    terms.clients.authorities.clear();
    let mistakes = terms.agree(now()).expect_err("no authority is named");
    assert!(mistakes[0].to_string().ends_with("give --ca-certs FILE"), "{mistakes:?}");
    terms.clients.authorities = vec![source("ca.pem", "")];
    assert!(terms.agree(now()).expect_err("it is empty")[0].to_string().starts_with("ca.pem: there is no certificate"));
}

#[test]
fn revoked_certificates_of_clients_are_refused() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let made = authority.issue(&["one.example"], ec);
    let serial =
        |number: u64| authority.issue_with(&["client"], ec, |params| params.serial_number = Some(number.into()));
    let (good, revoked) = (serial(1), serial(2));
    let list = |due: Duration| {
        let begin = SystemTime::now() - Duration::from_secs(3600);
        let params = CertificateRevocationListParams {
            this_update: begin.into(),
            next_update: (begin + due).into(),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![rcgen::RevokedCertParams {
                serial_number: 2_u64.into(),
                revocation_time: begin.into(),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        params.signed_by(&authority.issuer).expect("a list can be made")
    };
    let mut terms = terms_of(&made);
    terms.clients = ClientTerms {
        certificates: ClientCertificates::Required,
        authorities: vec![source("ca.pem", &authority.pem)],
        revocation_lists: vec![source("crl.pem", list(Duration::from_secs(86400)).pem().expect("it is text"))],
    };
    let served = |terms: &Terms, client: &Made| {
        shake_hands(agree(terms).config, Arc::new(client_config(&authority, Some(client))), "one.example").is_ok()
    };
    assert!(served(&terms, &good) && !served(&terms, &revoked));
    assert_eq!(agree(&terms).warnings, [] as [&str; 0]);
    // One that is late is still used, and in DER it is the same.
    terms.clients.revocation_lists = vec![source("crl.der", list(Duration::from_secs(60)).der())];
    assert!(served(&terms, &good) && !served(&terms, &revoked));
    assert!(agree(&terms).warnings[0].starts_with("crl.der: the revocation list was to be replaced by "));
    terms.clients.revocation_lists.push(source("other.crl", &made.pem));
    let mistakes = terms.agree(now()).expect_err("it is none");
    assert!(mistakes[0].to_string().starts_with("other.crl: there is no certificate revocation list in it, but"));
}

#[test]
fn session_is_resumed_by_another_process_and_not_after_the_terms_for_clients_have_changed() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let made = authority.issue(&["one.example", "two.example"], ec);
    let own = authority.issue(&["client"], ec);
    let mut terms = terms_of(&made);
    terms.clients.certificates = ClientCertificates::Optional;
    terms.clients.authorities = vec![source("ca.pem", &authority.pem)];
    let kind = |terms: &Terms, client: &Arc<ClientConfig>, name: &str| {
        let (server, _) = shake_hands(agree(terms).config, Arc::clone(client), name).expect("it succeeds");
        server.handshake_kind().expect("it is over")
    };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).expect("it is one");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.key_der.clone()));
        let client = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![own.der.clone()], key)
            .expect("it fits");
        let client = Arc::new(client);
        assert_eq!(kind(&terms, &client, "one.example"), Full);
        assert_eq!(kind(&terms, &client, "one.example"), Resumed);
        let mut rotated = terms.clone();
        rotated.tickets = TicketSecrets(vec![[8; 32], [7; 32]]);
        assert_eq!(kind(&rotated, &client, "one.example"), Resumed);
        let mut changed = rotated.clone();
        changed.clients.authorities.push(source("more.pem", &Authority::new("another").pem));
        assert_eq!(kind(&changed, &client, "one.example"), Full);
        assert_eq!(kind(&changed, &client, "one.example"), Resumed);
        changed.tickets = TicketSecrets(vec![[9; 32]]);
        assert_eq!(kind(&changed, &client, "one.example"), Full);
    }
}

/// A store of a client that offers each session to every server, as an attacker would who has stolen tickets.
#[derive(Debug)]
struct ForeignSessions(ClientSessionMemoryCache);

impl ForeignSessions {
    fn name() -> ServerName<'static> {
        ServerName::try_from("every.example").expect("a name")
    }
}

impl ClientSessionStore for ForeignSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(Self::name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&Self::name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(Self::name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&Self::name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&Self::name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(Self::name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&Self::name())
    }
}

/// RFC 6066 section 3: a session is not resumed for another server name. Otherwise the certificate that a client has
/// shown to one site would count for another.
#[test]
fn session_of_one_server_name_is_not_resumed_for_another() {
    let authority = Authority::new("authority");
    let made = authority.issue(&["one.example", "two.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let terms = terms_of(&made);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).expect("it is one");
        let mut client = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::store(Arc::new(ForeignSessions(ClientSessionMemoryCache::new(8))));
        let client = Arc::new(client);
        let kinds = ["one.example", "one.example", "two.example", "two.example"].map(|name| {
            let (server, _) = shake_hands(agree(&terms).config, Arc::clone(&client), name).expect("it succeeds");
            server.handshake_kind().expect("it is over")
        });
        assert_eq!(kinds, [Full, Resumed, Full, Resumed], "{version:?}");
    }
}

#[test]
fn nothing_that_is_broken_is_offered() {
    let made = Authority::new("authority").issue(&["one.example"], &rcgen::PKCS_ECDSA_P256_SHA256);
    let Agreed { config, .. } = agree(&terms_of(&made));
    for suite in &config.crypto_provider().cipher_suites {
        let name = suite.suite().as_str().unwrap_or_default();
        // Each has forward secrecy and an authenticated cipher: no RSA key exchange (ROBOT), no CBC (Lucky 13), no RC4.
        let is_sound = name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_");
        assert!(is_sound && (name.contains("_GCM_") || name.contains("_CHACHA20_POLY1305")), "{name}");
    }
    // Early data can be replayed (RFC 8446 section 8).
    assert_eq!((config.max_early_data_size, config.send_half_rtt_data), (0, false));
    assert!(!config.enable_secret_extraction);
}

/// A list in a file that was damaged, or written by an attacker, is a mistake of the settings and never a panic, as in
/// rustls-webpki before 0.103.13 (RUSTSEC-2026-0104).
#[test]
fn damaged_revocation_list_does_not_panic() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let (made, own) = (authority.issue(&["one.example"], ec), authority.issue(&["client"], ec));
    let begin = SystemTime::now() - Duration::from_secs(3600);
    let point = rcgen::CrlDistributionPoint { uris: vec!["http://one.example/crl".to_owned()] };
    let params = CertificateRevocationListParams {
        this_update: begin.into(),
        next_update: (begin + Duration::from_secs(86400)).into(),
        crl_number: 1_u64.into(),
        issuing_distribution_point: Some(rcgen::CrlIssuingDistributionPoint {
            distribution_point: point,
            scope: Some(rcgen::CrlScope::UserCertsOnly),
        }),
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&authority.issuer).expect("a list can be made").der().to_vec();
    let mut terms = terms_of(&made);
    terms.clients.certificates = ClientCertificates::Required;
    terms.clients.authorities = vec![source("ca.pem", &authority.pem)];
    for at in 0..list.len() {
        for bits in [0x01, 0xff] {
            let mut damaged = list.clone();
            damaged[at] ^= bits;
            terms.clients.revocation_lists = vec![source("crl.der", damaged)];
            if let Ok(agreed) = terms.agree(now()) {
                let client = Arc::new(client_config(&authority, Some(&own)));
                shake_hands(agreed.config, client, "one.example").ok();
            }
        }
    }
}

#[test]
fn challenge_is_answered_for_its_protocol_alone() {
    let authority = Authority::new("authority");
    let ec = &rcgen::PKCS_ECDSA_P256_SHA256;
    let made = authority.issue(&["one.example", "192.0.2.1"], ec);
    let challenge = authority.issue(&["one.example"], ec);
    let address = authority.issue(&["192.0.2.1"], ec);
    let mut terms = terms_of(&made);
    for made in [&challenge, &address] {
        terms.certificates.push(CertificateFiles { is_challenge: true, ..files(&made.pem, &made.key) });
    }
    let with = |protocols: &[&[u8]]| {
        let mut client = client_config(&authority, None);
        client.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        client
    };
    let of = |client, name| presented(agree(&terms).config, client, name);
    assert!(of(with(&[b"acme-tls/1"]), "one.example") == challenge.der);
    assert!(of(with(&[b"http/1.1"]), "one.example") == made.der);
    assert!(of(with(&[b"http/1.1", b"acme-tls/1"]), "one.example") == made.der);
    // Without a challenge the protocol is not offered.
    terms.certificates.truncate(1);
    let refused = shake_hands(agree(&terms).config, Arc::new(with(&[b"acme-tls/1"])), "one.example");
    assert!(refused.is_err());
}
