//! QPACK (RFC 9204) without a dynamic table: the static table and literals. A server that allows a table of 0 bytes needs
//! no more, and neither stream that would synchronise a table.

use std::sync::LazyLock;

use wire::http2::hpack::{Decoder, Encoder, Indexing};

/// The entries of appendix A in their order: a name, and its values.
const ENTRIES: &str = "\
:authority\n:path /\nage 0\ncontent-disposition\ncontent-length 0\ncookie\ndate\netag\nif-modified-since\nif-none-match
last-modified\nlink\nlocation\nreferer\nset-cookie\n:method CONNECT|DELETE|GET|HEAD|OPTIONS|POST|PUT\n:scheme http|https
:status 103|200|304|404|503\naccept */*|application/dns-message\naccept-encoding gzip, deflate, br\naccept-ranges bytes
access-control-allow-headers cache-control|content-type\naccess-control-allow-origin *
cache-control max-age=0|max-age=2592000|max-age=604800|no-cache|no-store|public, max-age=31536000\ncontent-encoding br|gzip
content-type application/dns-message|application/javascript|application/json|application/x-www-form-urlencoded|image/gif|\
image/jpeg|image/png|text/css|text/html; charset=utf-8|text/plain|text/plain;charset=utf-8\nrange bytes=0-
strict-transport-security max-age=31536000|max-age=31536000; includesubdomains|max-age=31536000; includesubdomains; preload
vary accept-encoding|origin\nx-content-type-options nosniff\nx-xss-protection 1; mode=block
:status 100|204|206|302|400|403|421|425|500\naccept-language\naccess-control-allow-credentials FALSE|TRUE
access-control-allow-headers *\naccess-control-allow-methods get|get, post, options|options
access-control-expose-headers content-length\naccess-control-request-headers content-type
access-control-request-method get|post\nalt-svc clear\nauthorization
content-security-policy script-src 'none'; object-src 'none'; base-uri 'none'\nearly-data 1\nexpect-ct\nforwarded
if-range\norigin\npurpose prefetch\nserver\ntiming-allow-origin *\nupgrade-insecure-requests 1\nuser-agent
x-forwarded-for\nx-frame-options deny|sameorigin";

static TABLE: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = ENTRIES.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    lines.flat_map(|(name, values)| values.split('|').map(move |value| (name, value))).collect()
});

/// Reads an integer with a prefix of `bits` (RFC 7541 section 5.1) from the front of `input`.
fn integer(input: &mut &[u8], bits: u32) -> Option<usize> {
    let mask = (1usize << bits) - 1;
    let (first, mut rest) = input.split_first()?;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        for shift in [0, 7, 14] {
            let (byte, after) = rest.split_first()?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *input = rest;
                return Some(value);
            }
        }
        return None;
    }
    *input = rest;
    Some(value)
}

/// Decodes strings in Huffman coding with the decoder of HPACK, which has the same code.
#[derive(Default)]
pub struct Strings {
    hpack: Decoder,
    block: Vec<u8>,
}

impl Strings {
    /// Reads a string whose length has a prefix of `bits`, below the flag for Huffman coding.
    fn read(&mut self, input: &mut &[u8], bits: u32, out: &mut Vec<u8>) -> Option<()> {
        let is_huffman = input.first()? >> bits & 1 == 1;
        let length = integer(input, bits)?;
        let (text, rest) = input.split_at_checked(length)?;
        *input = rest;
        out.clear();
        if !is_huffman {
            out.extend_from_slice(text);
            return Some(());
        }
        // A field of HPACK with the name "x" and this value. Values of 127 bytes and more are not needed here.
        let length = u8::try_from(length).ok().filter(|length| *length < 127)?;
        self.block.clear();
        self.block.extend_from_slice(&[0, 1, b'x', 0x80 | length]);
        self.block.extend_from_slice(text);
        self.hpack.decode(&self.block, |_, value| out.extend_from_slice(value)).ok()?;
        self.hpack.end_block(0).ok()
    }
}

/// Decodes a field section, and gives each field to `sink` with name and value. Returns `None` if it is malformed.
pub fn decode(mut input: &[u8], strings: &mut Strings, mut sink: impl FnMut(&[u8], &[u8])) -> Option<()> {
    // The required insert count and the base are 0 without a dynamic table.
    input = input.strip_prefix(&[0, 0])?;
    let (mut name, mut value) = (Vec::new(), Vec::new());
    while let Some(&first) = input.first() {
        if first & 0xc0 == 0xc0 {
            let (name, value) = TABLE.get(integer(&mut input, 6)?)?;
            sink(name.as_bytes(), value.as_bytes());
        } else if first & 0xd0 == 0x50 {
            let (name, _) = TABLE.get(integer(&mut input, 4)?)?;
            strings.read(&mut input, 7, &mut value)?;
            sink(name.as_bytes(), &value);
        } else if first & 0xe0 == 0x20 {
            strings.read(&mut input, 3, &mut name)?;
            strings.read(&mut input, 7, &mut value)?;
            sink(&name, &value);
        } else {
            return None;
        }
    }
    Some(())
}

/// Encodes fields whose names are in the static table (at an index below 271).
pub fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        let at = |matches: &dyn Fn(&(&str, &str)) -> bool| TABLE.iter().position(matches);
        if let Some(index) = at(&|entry| entry == &(*name, *value)) {
            prefixed(index, 0xc0, 6, &mut out);
        } else {
            prefixed(at(&|entry| entry.0 == *name).expect("a name of the table"), 0x50, 4, &mut out);
            let mut field = Vec::new();
            Encoder::default().field(b"x", value.as_bytes(), Indexing::Never, &mut field);
            // The value behind the representation's kind, the length 1 and the name; its form is that of QPACK.
            out.extend_from_slice(&field[3..]);
        }
    }
    out
}

fn prefixed(value: usize, flags: u8, bits: u32, out: &mut Vec<u8>) {
    let mask = (1 << bits) - 1;
    if value < mask {
        out.push(flags | u8::try_from(value).expect("below the mask"));
    } else {
        out.push(flags | u8::try_from(mask).expect("a byte"));
        out.push(u8::try_from(value - mask).ok().filter(|rest| *rest < 128).expect("an index of the table"));
    }
}

#[test]
fn static_table_has_the_entries_of_appendix_a() {
    assert_eq!(TABLE.len(), 99);
    assert_eq!(
        [TABLE[17], TABLE[25], TABLE[53]],
        [(":method", "GET"), (":status", "200"), ("content-type", "text/plain")]
    );
    assert_eq!(
        [TABLE[71], TABLE[84], TABLE[98]],
        [(":status", "500"), ("authorization", ""), ("x-frame-options", "sameorigin")]
    );
}

#[test]
fn fields_survive_encoding_and_decoding() {
    let fields =
        [(":method", "GET"), (":authority", "localhost:443"), ("user-agent", "load/1"), ("x-frame-options", "deny")];
    let mut read = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
    decode(&encode(&fields), &mut Strings::default(), |name, value| read.push((text(name), text(value))))
        .expect("valid");
    assert_eq!(read, fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
