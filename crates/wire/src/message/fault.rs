//! The rules that a peer can break, of all protocols.

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident $status:literal $explanation:literal,)*) => {
        /// A rule that the peer broke: one variant a rule, each with the status that answers it.
        ///
        /// After a fault the connection cannot be read any further, because the start of the next message is not known;
        /// the answer closes it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])* $name,)*
        }

        impl Fault {
            /// The faults that only FastCGI, uwsgi and SCGI know.
            pub const GATEWAY: &[Fault] =
                &[
                    Fault::BodyLengthWrong,
                    Fault::GatewayProtocolMixedUp,
                    Fault::HttpOnGatewayProtocol,
                    Fault::LengthRequired,
                    Fault::RecordMalformed,
                    Fault::VariablesMalformed,
                ];

            /// The fault that only HTTP/2 knows.
            pub const HTTP2: Fault = Fault::Http2Violated;

            /// Every variant, so that a test can demand that each is reached.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            /// Returns the status code of the answer.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Fault::$name => $status,)* }
            }

            /// Returns one sentence for the peer. It never repeats what the peer sent.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(Fault::$name => $explanation,)* }
            }

            /// Returns the source of the rule, such as `RFC 9112 section 3.2`; `None` for a rule of this server's own.
            #[must_use]
            pub fn source(self) -> Option<&'static str> {
                let comment = match self { $(Fault::$name => concat!($($doc),*),)* };
                let source = &comment[comment.find("RFC ")?..];
                let end = source.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, ' ' | '.')));
                Some(source[..end.unwrap_or(source.len())].trim_end_matches('.'))
            }

            /// Returns the variant's name, as the corpus spells it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name),)* }
            }
        }
    };
}

faults! {
    /// `*` is for OPTIONS alone (RFC 9112 section 3.2.4).
    AsteriskWithoutOptions 400 "The target * belongs to OPTIONS.",
    /// A CR that no LF follows (RFC 9112 section 2.2).
    BareCarriageReturn 400 "A carriage return stands without its line feed.",
    /// An LF that no CR precedes: allowed to be tolerated, and the root of too many smuggling tricks.
    BareLineFeed 400 "A line ends without its carriage return.",
    /// A FastCGI request whose stream of body bytes is longer than its `CONTENT_LENGTH` (RFC 3875 section 4.1.2).
    BodyLengthWrong 400 "The body is longer than CONTENT_LENGTH says.",
    /// Content-Length or the sum of the chunks exceeds the limit.
    BodyTooLarge 413 "The body is larger than this server accepts.",
    /// Chunk data is followed by something other than CRLF (CVE-2025-43859).
    ChunkEndMissing 400 "A chunk does not end where its size says.",
    /// A chunk extension that is not RFC 9112 section 7.1.1's.
    ChunkExtensionInvalid 400 "A chunk extension is malformed.",
    /// A chunk-size line beyond its bound, or all of them together.
    ChunkLineTooLong 400 "A chunk-size line is too long.",
    /// The chunk size is not hexadecimal digits alone.
    ChunkSizeInvalid 400 "A chunk size is not a hexadecimal number.",
    /// More than 16 digits, or beyond the body limit.
    ChunkSizeTooLarge 413 "A chunk is larger than this server accepts.",
    /// A field line without a colon.
    ColonMissing 400 "A header line has no colon.",
    /// A tunnel was asked for; an application server has none.
    ConnectRefused 501 "This server does not open tunnels.",
    /// Not 1*DIGIT, or beyond 2^63 - 1 (RFC 9110 section 8.6).
    ContentLengthInvalid 400 "Content-Length is not a number.",
    /// Two Content-Length lines, even if they agree (RFC 9112 section 6.3 lets us refuse).
    ContentLengthRepeated 400 "Content-Length is given twice.",
    /// An Expect other than 100-continue (RFC 9110 section 10.1.1).
    ExpectationUnknown 417 "The expectation cannot be met.",
    /// A field line beyond its bound.
    FieldLineTooLong 431 "A header line is too long.",
    /// Nothing before the colon.
    FieldNameEmpty 400 "A header line has no name.",
    /// A name that is not a token (RFC 9110 section 5.1).
    FieldNameInvalid 400 "A header name has a character that is not allowed.",
    /// A control character in a value (RFC 9110 section 5.5).
    FieldValueInvalid 400 "A header value has a character that is not allowed.",
    /// More field lines than the limit.
    FieldsTooMany 431 "There are too many header lines.",
    /// Fields of a trusted proxy that say different things of the same request.
    ForwardedContradictory 400 "The fields with which the proxy names the client contradict each other.",
    /// A field of a trusted proxy that is malformed (RFC 7239 section 4).
    ForwardedInvalid 400 "A field with which the proxy names the client is malformed.",
    /// FastCGI, uwsgi or SCGI where another of the three is spoken.
    GatewayProtocolMixedUp 400 "The web server speaks another of FastCGI, uwsgi and SCGI than this address: change --bind, or the web server.",
    /// FastCGI, uwsgi or SCGI on an address for HTTP.
    GatewayProtocolOnHttp 400 "FastCGI, uwsgi or SCGI was spoken on an address for HTTP: write fastcgi:, uwsgi: or scgi: before it in --bind.",
    /// The head as a whole is beyond its bound.
    HeadTooLarge 431 "The header section is too large.",
    /// HTTP on an address for FastCGI, uwsgi or SCGI.
    HttpOnGatewayProtocol 400 "HTTP was spoken on an address for FastCGI, uwsgi or SCGI: leave this word out of --bind, or have the web server speak it.",
    /// The preface of HTTP/2 on a connection of HTTP/1 (RFC 9113 section 3.4): `--http 1` has turned HTTP/2 off, or a
    /// client of TLS has not negotiated it.
    Http2Preface 505 "HTTP/2 was spoken on a connection of HTTP/1.1: encrypted ones have to negotiate it (ALPN), and --http 1 turns it off.",
    /// A rule of HTTP/2 whose violation ends the connection (RFC 9113 section 5.4.1). GOAWAY says which.
    Http2Violated 400 "The client broke a rule of HTTP/2, and the connection ends.",
    /// Not uri-host [":" port] (RFC 9110 section 7.2).
    HostInvalid 400 "Host is not a host name with an optional port.",
    /// HTTP/1.1 without Host (RFC 9112 section 3.2).
    HostMissing 400 "Host is missing.",
    /// More than one Host line (RFC 9112 section 3.2).
    HostRepeated 400 "Host is given twice.",
    /// A uwsgi or SCGI request with a chunked body and no `CONTENT_LENGTH`: its end cannot be known (RFC 9110 section
    /// 15.5.12).
    LengthRequired 411 "The length of the body is missing.",
    /// A line that continues the one before (RFC 9112 section 5.2).
    LineFolded 400 "A header line is folded.",
    /// The method is not a token.
    MethodInvalid 400 "The method has a character that is not allowed.",
    /// The method is longer than any method.
    MethodTooLong 501 "The method is not known.",
    /// A PROXY protocol header, version 1 or 2, from a load balancer.
    ProxyProtocol 400 "A PROXY protocol header was sent where none is expected: add ?proxy to the address, or turn it off in the proxy.",
    /// A FastCGI record that the specification does not allow, or the frame of a uwsgi or SCGI request.
    RecordMalformed 400 "The gateway's record is malformed.",
    /// The request line does not have its three parts with one space between.
    RequestLineMalformed 400 "The request line is malformed.",
    /// The request line is beyond its bound.
    RequestLineTooLong 414 "The request target is too long.",
    /// White space between a field name and its colon (RFC 9112 section 5.1).
    SpaceBeforeColon 400 "There is space between a header name and its colon.",
    /// White space before the first field line (RFC 9112 section 2.2).
    SpaceBeforeFirstField 400 "There is space before the first header.",
    /// The identification of SSH (RFC 4253 section 4.2).
    SshBanner 400 "SSH was spoken on an HTTP port.",
    /// Neither a path, nor an absolute http(s) URI, nor `*`.
    TargetFormInvalid 400 "The request target is neither a path nor a URI of this server.",
    /// A character that no target has.
    TargetInvalid 400 "The request target has a character that is not allowed.",
    /// A TLS record with a handshake (RFC 8446 section 5.1): most often a `ClientHello`.
    TlsHandshake 400 "TLS was spoken on a port without TLS; use http:// or put TLS in front of this server.",
    /// A trailer that would change framing or routing (RFC 9110 section 6.5.1).
    TrailerForbidden 400 "A trailer is not allowed to say this.",
    /// The trailer section is beyond its bound.
    TrailersTooLarge 431 "The trailer section is too large.",
    /// Transfer-Encoding empty, chunked twice, or chunked not last (RFC 9112 section 6.1).
    TransferEncodingInvalid 400 "Transfer-Encoding is malformed.",
    /// HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1).
    TransferEncodingOnHttp10 400 "HTTP/1.0 has no Transfer-Encoding.",
    /// A coding that is not implemented (RFC 9112 section 6.1).
    TransferEncodingUnsupported 501 "This transfer coding is not supported.",
    /// Two framings in one message (RFC 9112 section 6.1).
    TransferEncodingWithContentLength 400 "Both Transfer-Encoding and Content-Length are given.",
    /// The peer closed in the middle of a message.
    Truncated 400 "The request ended early.",
    /// The variables of a FastCGI, uwsgi or SCGI request cannot be read, or `REQUEST_METHOD` is missing (RFC 3875
    /// section 4.1).
    VariablesMalformed 400 "The gateway's variables are malformed.",
    /// Not HTTP/ DIGIT . DIGIT (RFC 9112 section 2.3).
    VersionMalformed 400 "The HTTP version is malformed.",
    /// A major version that is not 1.
    VersionUnsupported 505 "This server speaks HTTP/1.0 and HTTP/1.1.",
}
