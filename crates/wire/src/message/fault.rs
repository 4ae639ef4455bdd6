//! The rules of all protocols that a peer can break.

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident $status:literal $explanation:literal,)*) => {
        /// A rule that the peer broke. There is one variant for each rule, with the status of the response to it.
        ///
        /// After a fault the connection cannot be read any further, because the start of the next message is not known.
        /// The error response closes it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])* $name,)*
        }

        impl Fault {
            /// The faults that only occur with FastCGI, uwsgi and SCGI.
            pub const GATEWAY: &[Fault] =
                &[
                    Fault::BodyLengthWrong,
                    Fault::GatewayProtocolMixedUp,
                    Fault::HttpOnGatewayProtocol,
                    Fault::LengthRequired,
                    Fault::RecordMalformed,
                    Fault::VariablesMalformed,
                ];

            /// The fault that only occurs with HTTP/2.
            pub const HTTP2: Fault = Fault::Http2Violated;

            /// All variants, so that a test can demand that each of them occurs.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];

            /// Returns the status code of the error response.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Fault::$name => $status,)* }
            }

            /// Returns an explanation for the peer in one sentence. It never repeats what the peer sent.
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

            /// Returns the variant's name, which the test corpus uses too.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name),)* }
            }
        }
    };
}

faults! {
    /// The target `*` with another method than OPTIONS (RFC 9112 section 3.2.4).
    AsteriskWithoutOptions 400 "The target * belongs to OPTIONS.",
    /// A CR that is not followed by LF (RFC 9112 section 2.2).
    BareCarriageReturn 400 "A carriage return stands without its line feed.",
    /// An LF that is not preceded by CR. Recipients may tolerate it, but many request smuggling attacks depend on that.
    BareLineFeed 400 "A line ends without its carriage return.",
    /// A FastCGI request whose body (the stream STDIN) is longer than its `CONTENT_LENGTH` (RFC 3875 section 4.1.2).
    BodyLengthWrong 400 "The body is longer than CONTENT_LENGTH says.",
    /// Content-Length, or the sum of the chunk sizes, exceeds the limit.
    BodyTooLarge 413 "The body is larger than this server accepts.",
    /// Chunk data is followed by something other than CRLF (CVE-2025-43859).
    ChunkEndMissing 400 "A chunk does not end where its size says.",
    /// A chunk extension that does not match the grammar (RFC 9112 section 7.1.1).
    ChunkExtensionInvalid 400 "A chunk extension is malformed.",
    /// A chunk-size line, or the sum of all chunk extensions, exceeds its limit.
    ChunkLineTooLong 400 "A chunk-size line is too long.",
    /// A chunk size that is not a hexadecimal number.
    ChunkSizeInvalid 400 "A chunk size is not a hexadecimal number.",
    /// A chunk size of more than 16 digits, or larger than the body limit.
    ChunkSizeTooLarge 413 "A chunk is larger than this server accepts.",
    /// A field line without a colon.
    ColonMissing 400 "A header line has no colon.",
    /// The method CONNECT. An application server opens no tunnels.
    ConnectRefused 501 "This server does not open tunnels.",
    /// A Content-Length that is not 1*DIGIT, or exceeds 2^63 - 1 (RFC 9110 section 8.6).
    ContentLengthInvalid 400 "Content-Length is not a number.",
    /// Two Content-Length lines, even if they are equal: a server may refuse them (RFC 9112 section 6.3).
    ContentLengthRepeated 400 "Content-Length is given twice.",
    /// An expectation other than 100-continue (RFC 9110 section 10.1.1).
    ExpectationUnknown 417 "The expectation cannot be met.",
    /// A field line that exceeds its limit.
    FieldLineTooLong 431 "A header line is too long.",
    /// A field line that begins with its colon.
    FieldNameEmpty 400 "A header line has no name.",
    /// A name that is not a token (RFC 9110 section 5.1).
    FieldNameInvalid 400 "A header name has a character that is not allowed.",
    /// A control character in a value (RFC 9110 section 5.5).
    FieldValueInvalid 400 "A header value has a character that is not allowed.",
    /// More field lines than the limit allows.
    FieldsTooMany 431 "There are too many header lines.",
    /// Fields of a trusted proxy that contradict each other about one request.
    ForwardedContradictory 400 "The fields with which the proxy names the client contradict each other.",
    /// A field of a trusted proxy that is malformed (RFC 7239 section 4).
    ForwardedInvalid 400 "A field with which the proxy names the client is malformed.",
    /// One of FastCGI, uwsgi and SCGI on an address for another of them.
    GatewayProtocolMixedUp 400 "The web server speaks another of FastCGI, uwsgi and SCGI than this address: change --bind, or the web server.",
    /// FastCGI, uwsgi or SCGI on an address for HTTP.
    GatewayProtocolOnHttp 400 "FastCGI, uwsgi or SCGI was spoken on an address for HTTP: write fastcgi:, uwsgi: or scgi: before it in --bind.",
    /// A head that exceeds its limit as a whole.
    HeadTooLarge 431 "The header section is too large.",
    /// HTTP on an address for FastCGI, uwsgi or SCGI.
    HttpOnGatewayProtocol 400 "HTTP was spoken on an address for FastCGI, uwsgi or SCGI: leave this word out of --bind, or have the web server speak it.",
    /// The preface of HTTP/2 on a connection of HTTP/1 (RFC 9113 section 3.4): `--http 1` has disabled HTTP/2, or a TLS
    /// client did not negotiate it.
    Http2Preface 505 "HTTP/2 was spoken on a connection of HTTP/1.1: encrypted ones have to negotiate it (ALPN), and --http 1 turns it off.",
    /// A rule of HTTP/2 whose violation ends the connection (RFC 9113 section 5.4.1). GOAWAY names the error.
    Http2Violated 400 "The client broke a rule of HTTP/2, and the connection ends.",
    /// A Host that is not uri-host [":" port] (RFC 9110 section 7.2).
    HostInvalid 400 "Host is not a host name with an optional port.",
    /// An HTTP/1.1 request without Host (RFC 9112 section 3.2).
    HostMissing 400 "Host is missing.",
    /// More than one Host line (RFC 9112 section 3.2).
    HostRepeated 400 "Host is given twice.",
    /// A uwsgi or SCGI request with a chunked body and no `CONTENT_LENGTH`: the end of its body is unknown (RFC 9110
    /// section 15.5.12).
    LengthRequired 411 "The length of the body is missing.",
    /// A field line that continues the one before (RFC 9112 section 5.2).
    LineFolded 400 "A header line is folded.",
    /// A method that is not a token.
    MethodInvalid 400 "The method has a character that is not allowed.",
    /// A method that is longer than any known one.
    MethodTooLong 501 "The method is not known.",
    /// A PROXY protocol header, version 1 or 2, on an address that does not expect one.
    ProxyProtocol 400 "A PROXY protocol header was sent where none is expected: add ?proxy to the address, or turn it off in the proxy.",
    /// A malformed FastCGI record, or a malformed frame of a uwsgi or SCGI request.
    RecordMalformed 400 "The gateway's record is malformed.",
    /// A request line that does not consist of three parts with one space between them.
    RequestLineMalformed 400 "The request line is malformed.",
    /// A request line that exceeds its limit.
    RequestLineTooLong 414 "The request target is too long.",
    /// White space between a field name and its colon (RFC 9112 section 5.1).
    SpaceBeforeColon 400 "There is space between a header name and its colon.",
    /// White space before the first field line (RFC 9112 section 2.2).
    SpaceBeforeFirstField 400 "There is space before the first header.",
    /// The identification string of SSH (RFC 4253 section 4.2).
    SshBanner 400 "SSH was spoken on an HTTP port.",
    /// A target that is neither a path, nor an absolute http(s) URI, nor `*`.
    TargetFormInvalid 400 "The request target is neither a path nor a URI of this server.",
    /// A character that is not allowed in a target.
    TargetInvalid 400 "The request target has a character that is not allowed.",
    /// A TLS record with a handshake (RFC 8446 section 5.1): most often a `ClientHello`.
    TlsHandshake 400 "TLS was spoken on a port without TLS; use http:// or put TLS in front of this server.",
    /// A trailer that would change framing or routing if it were obeyed (RFC 9110 section 6.5.1).
    TrailerForbidden 400 "A trailer is not allowed to say this.",
    /// A trailer section that exceeds its limit.
    TrailersTooLarge 431 "The trailer section is too large.",
    /// A Transfer-Encoding that is empty, or in which chunked occurs twice or not last (RFC 9112 section 6.1).
    TransferEncodingInvalid 400 "Transfer-Encoding is malformed.",
    /// Transfer-Encoding in a request of HTTP/1.0, which does not have it (RFC 9112 section 6.1).
    TransferEncodingOnHttp10 400 "HTTP/1.0 has no Transfer-Encoding.",
    /// A transfer coding that is not implemented (RFC 9112 section 6.1).
    TransferEncodingUnsupported 501 "This transfer coding is not supported.",
    /// Transfer-Encoding and Content-Length in one message (RFC 9112 section 6.1).
    TransferEncodingWithContentLength 400 "Both Transfer-Encoding and Content-Length are given.",
    /// The peer closed the connection in the middle of a message.
    Truncated 400 "The request ended early.",
    /// The variables of a FastCGI, uwsgi or SCGI request cannot be read, or `REQUEST_METHOD` is missing (RFC 3875
    /// section 4.1).
    VariablesMalformed 400 "The gateway's variables are malformed.",
    /// A version that is not HTTP/ DIGIT . DIGIT (RFC 9112 section 2.3).
    VersionMalformed 400 "The HTTP version is malformed.",
    /// A version whose major number is not 1.
    VersionUnsupported 505 "This server speaks HTTP/1.0 and HTTP/1.1.",
}
