//! Distinguished names as text, in the two formats that applications expect.

use std::borrow::Cow;
use std::fmt::Write as _;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Encode, Tag, Tagged};
use x509_cert::name::{Name, RelativeDistinguishedName};

/// The types of attributes: the object identifier, OpenSSL's name, the suffix of `mod_ssl`'s variables (empty if there
/// is none), and true if RFC 4514 section 3 names the type too.
const TYPES: [(&str, &str, &str, bool); 25] = [
    ("2.5.4.3", "CN", "CN", true),
    ("2.5.4.4", "SN", "S", false),
    ("2.5.4.5", "serialNumber", "", false),
    ("2.5.4.6", "C", "C", true),
    ("2.5.4.7", "L", "L", true),
    ("2.5.4.8", "ST", "ST", true),
    ("2.5.4.9", "street", "", true),
    ("2.5.4.10", "O", "O", true),
    ("2.5.4.11", "OU", "OU", true),
    ("2.5.4.12", "title", "T", false),
    ("2.5.4.13", "description", "D", false),
    ("2.5.4.15", "businessCategory", "", false),
    ("2.5.4.17", "postalCode", "", false),
    ("2.5.4.20", "telephoneNumber", "", false),
    ("2.5.4.41", "name", "", false),
    ("2.5.4.42", "GN", "G", false),
    ("2.5.4.43", "initials", "I", false),
    ("2.5.4.44", "generationQualifier", "", false),
    ("2.5.4.46", "dnQualifier", "", false),
    ("2.5.4.65", "pseudonym", "", false),
    ("2.5.4.97", "organizationIdentifier", "", false),
    ("0.9.2342.19200300.100.1.1", "UID", "UID", true),
    ("0.9.2342.19200300.100.1.3", "mail", "", false),
    ("0.9.2342.19200300.100.1.25", "DC", "DC", true),
    ("1.2.840.113549.1.9.1", "emailAddress", "Email", false),
];

/// The name of a certificate's subject or issuer.
#[derive(Clone, Copy, Debug)]
pub struct DistinguishedName<'a>(pub(crate) &'a Name);

impl DistinguishedName<'_> {
    /// Returns the name in the format of `mod_ssl` and `openssl x509 -nameopt RFC2253,-esc_msb`: RFC 2253 in UTF-8,
    /// with OpenSSL's names of types.
    #[must_use]
    pub fn rfc2253(&self) -> String {
        self.written(|attribute| {
            let known = known_type(&attribute.oid).map(|(_, name, ..)| *name);
            named_value(attribute, known)
        })
    }

    /// Returns the name in the format of RFC 4514. A type that the RFC does not name is written as its identifier, with
    /// the value in hexadecimal digits.
    #[must_use]
    pub fn rfc4514(&self) -> String {
        self.written(|attribute| {
            let known = known_type(&attribute.oid).filter(|(.., is_named)| *is_named);
            named_value(attribute, known.map(|(_, name, ..)| *name))
        })
    }

    /// Returns the parts of the name in reverse order. As in OpenSSL, the attributes within a part are reversed too.
    fn written(self, attribute: impl Fn(&AttributeTypeAndValue) -> String) -> String {
        let part = |relative: &RelativeDistinguishedName| {
            let mut attributes: Vec<_> = relative.iter().map(&attribute).collect();
            attributes.reverse();
            attributes.join("+")
        };
        let mut parts: Vec<_> = self.0.iter_rdn().map(part).collect();
        parts.reverse();
        parts.join(",")
    }

    /// Returns the first value of each type that `mod_ssl` names, such as `CN`.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut found: Vec<(&'static str, String)> = Vec::new();
        for attribute in self.0.iter() {
            let Some((_, _, name, _)) = known_type(&attribute.oid).filter(|(_, _, name, _)| !name.is_empty()) else {
                continue;
            };
            let Some(value) = text(attribute) else { continue };
            if found.iter().all(|(known, _)| known != name) {
                found.push((name, escaped(&value, false)));
            }
        }
        found
    }
}

fn known_type(identifier: &ObjectIdentifier) -> Option<&'static (&'static str, &'static str, &'static str, bool)> {
    let identifier = identifier.to_string();
    TYPES.iter().find(|(known, ..)| *known == identifier)
}

/// Returns an attribute as `type=value`, or as `identifier=#DER` if the type has no name or the value is not text.
fn named_value(attribute: &AttributeTypeAndValue, name: Option<&str>) -> String {
    match (name, text(attribute)) {
        (Some(name), Some(value)) => format!("{name}={}", escaped(&value, true)),
        (name, _) => {
            let mut written = format!("{}=#", name.map_or_else(|| attribute.oid.to_string(), ToOwned::to_owned));
            for byte in attribute.value.to_der().unwrap_or_default() {
                write!(written, "{byte:02X}").expect("a String takes everything");
            }
            written
        }
    }
}

/// Returns the value of an attribute; `None` if it is not text.
fn text(attribute: &AttributeTypeAndValue) -> Option<Cow<'_, str>> {
    let bytes = attribute.value.value();
    match attribute.value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::NumericString | Tag::Ia5String | Tag::VisibleString => {
            str::from_utf8(bytes).ok().map(Cow::Borrowed)
        }
        // OpenSSL and browsers read this type as Latin-1.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            let decoded: Result<String, _> = char::decode_utf16(units).collect();
            decoded.ok().filter(|_| rest.is_empty()).map(Cow::Owned)
        }
        _ => None,
    }
}

/// Escapes control characters and the backslash. With `all`, also escapes the characters of RFC 2253 section 2.4 and
/// RFC 4514 section 2.4.
fn escaped(value: &str, all: bool) -> String {
    let mut written = String::with_capacity(value.len());
    let last = value.char_indices().next_back().map_or(0, |(index, _)| index);
    for (index, character) in value.char_indices() {
        let is_edge = (index == 0 && matches!(character, ' ' | '#')) || (index == last && character == ' ');
        match character {
            '\\' => written.push_str("\\\\"),
            '\0'..='\x1f' | '\x7f' => {
                write!(written, "\\{:02X}", u32::from(character)).expect("a String takes everything");
            }
            '"' | '+' | ',' | ';' | '<' | '>' if all => written.extend(['\\', character]),
            _ if all && is_edge => written.extend(['\\', character]),
            _ => written.push(character),
        }
    }
    written
}
