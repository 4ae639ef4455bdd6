//! Reading of certificates, keys and revocation lists from files, and explanations of files with other content.

use crate::source::{Mistake, Source};
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The PEM label of an encrypted private key, written by OpenSSL.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// The prefix of the content types "signed data" and "data" of PKCS #7, in DER. PKCS #7 and PKCS #12 files begin with
/// one of them.
const PKCS7_TYPE: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07];

/// Returns the certificates of a file, at least one.
pub(crate) fn certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, Mistake> {
    let found: Vec<_> = sections(source)?
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| CertificateDer::from(der))
        .collect();
    if found.is_empty() { Err(not_a_certificate(source)) } else { Ok(found) }
}

/// Returns the private key of a file.
pub(crate) fn private_key(source: &Source, password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, Mistake> {
    // A key in OpenSSL's old format has the label of an unencrypted one, and a header in its body.
    if contains(&source.content, b"Proc-Type: 4,ENCRYPTED") {
        return Err(source.mistake(format_args!(
            "the key is encrypted in OpenSSL's old way; convert it: openssl pkcs8 -topk8 -in {0} -out {0}.new",
            source.path
        )));
    }
    match sections(source)?.into_iter().find_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der)) {
        Some(key) => Ok(key),
        None if labels(source).any(|label| label == ENCRYPTED) => decrypt(source, password),
        None => Err(not_a_key(source)),
    }
}

/// Returns the certificate revocation lists of a file, in PEM or DER.
pub(crate) fn revocation_lists(source: &Source) -> Result<Vec<CertificateRevocationListDer<'static>>, Mistake> {
    if is_der(&source.content) {
        return Ok(vec![source.content.clone().into()]);
    }
    let found: Vec<_> = sections(source)?
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Crl)
        .map(|(_, der)| CertificateRevocationListDer::from(der))
        .collect();
    if found.is_empty() {
        let text = format!("there is no certificate revocation list in it{}", found_instead(source));
        return Err(source.mistake(text));
    }
    Ok(found)
}

/// Returns the sections of a PEM file that are certificates, keys or revocation lists.
fn sections(source: &Source) -> Result<Vec<(SectionKind, Vec<u8>)>, Mistake> {
    let damaged = |error| source.mistake(format_args!("it is damaged, copy it again: {error}"));
    <(SectionKind, Vec<u8>)>::pem_slice_iter(&source.content).collect::<Result<_, _>>().map_err(damaged)
}

/// Returns the labels in a PEM file.
fn labels(source: &Source) -> impl Iterator<Item = &str> {
    source.content.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = str::from_utf8(line).ok()?.trim();
        line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")
    })
}

/// Decrypts a PKCS #8 key.
fn decrypt(source: &Source, password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, Mistake> {
    let path = &source.path;
    let Some(password) = password else {
        return Err(source.mistake(format_args!(
            "the key is encrypted, and there is no password; give it with --keyfile-password file:PATH, or decrypt \
             the key: openssl pkey -in {path} -out {path}.plain"
        )));
    };
    // The decoder rejects the label of encrypted keys, but the format is otherwise the same.
    let content = String::from_utf8_lossy(&source.content).replace(ENCRYPTED, "PRIVATE KEY");
    let sealed = PrivatePkcs8KeyDer::from_pem_slice(content.as_bytes())
        .map_err(|error| source.mistake(format_args!("it is damaged, copy it again: {error}")))?;
    let info = EncryptedPrivateKeyInfoRef::try_from(sealed.secret_pkcs8_der()).map_err(|error| {
        source.mistake(format_args!(
            "the key is encrypted in a way that is not known ({error}); encrypt it again: openssl pkcs8 -topk8 \
             -v2 aes-256-cbc -in {path} -out {path}.new"
        ))
    })?;
    let key = info.decrypt(password).map_err(|_| {
        source.mistake(format_args!("the password does not decrypt the key; try it: openssl pkey -in {path} -noout"))
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// Explains why a file has no certificate.
fn not_a_certificate(source: &Source) -> Mistake {
    let path = &source.path;
    if let Some(text) = not_pem(path, &source.content, "x509") {
        return source.mistake(text);
    }
    let wanted = "and a certificate is wanted";
    match labels(source).next() {
        Some(label) if label.ends_with("PRIVATE KEY") => {
            source.mistake(format_args!("this is a private key, {wanted}; are --certfile and --keyfile exchanged?"))
        }
        Some("CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") => source.mistake(format_args!(
            "this is a request for a certificate, {wanted}: the one that the authority has sent"
        )),
        Some("PKCS7") => source.mistake(format_args!(
            "this is PKCS #7, {wanted}; convert it: openssl pkcs7 -print_certs -in {path} -out {path}.pem"
        )),
        _ => source.mistake(format_args!(
            "there is no certificate in it{}; a PEM file begins with -----BEGIN CERTIFICATE-----, and openssl x509 \
             -in {path} -noout -text shows it",
            found_instead(source)
        )),
    }
}

/// Explains why a file has no private key.
fn not_a_key(source: &Source) -> Mistake {
    let path = &source.path;
    if let Some(text) = not_pem(path, &source.content, "pkey") {
        return source.mistake(text);
    }
    match labels(source).next() {
        Some("CERTIFICATE") => source.mistake(
            "this is a certificate without a private key; name the file with the key (--keyfile), or exchange \
             --certfile and --keyfile",
        ),
        Some(label) if label.ends_with("PUBLIC KEY") => {
            source.mistake("this is a public key, and the private key of the certificate is wanted")
        }
        _ => source.mistake(format_args!(
            "there is no private key in it{}; a PEM file begins with -----BEGIN PRIVATE KEY-----, and openssl pkey \
             -in {path} -noout -text shows it",
            found_instead(source)
        )),
    }
}

/// Explains a file that is not in PEM; `None` if it may be PEM. `command` is OpenSSL's command for the expected
/// content.
fn not_pem(path: &str, content: &[u8], command: &str) -> Option<String> {
    let beginning = &content[..content.len().min(64)];
    let (format, conversion) = if beginning.starts_with(b"\xff\xfe") || beginning.starts_with(b"\xfe\xff") {
        ("UTF-16", format!("iconv -f UTF-16 -t UTF-8 -o {path}.pem {path}"))
    } else if !is_der(content) {
        return None;
    } else if contains(beginning, PKCS7_TYPE) {
        ("PKCS #12 (or #7)", format!("openssl pkcs12 -in {path} -noenc -out {path}.pem"))
    } else {
        ("DER", format!("openssl {command} -inform der -in {path} -out {path}.pem"))
    };
    Some(format!("this is {format}, and PEM is wanted; convert it: {conversion}"))
}

/// Returns what a file contains instead of the expected content, to be appended to a sentence.
fn found_instead(source: &Source) -> String {
    if source.content.iter().all(u8::is_ascii_whitespace) {
        return ": it is empty".to_owned();
    }
    labels(source).next().map_or_else(String::new, |label| format!(", but {:?}", label.to_lowercase()))
}

/// Returns true if a file begins like DER: with a sequence and its length.
fn is_der(content: &[u8]) -> bool {
    matches!(content, [0x30, 0x81..=0x84 | 0x20..=0x7f, ..]) && !content.starts_with(b"0\r") && !content.is_ascii()
}

fn contains(content: &[u8], part: &[u8]) -> bool {
    content.windows(part.len()).any(|window| window == part)
}
