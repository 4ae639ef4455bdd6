//! The rules that a peer can break: in the opening handshake, and on an established connection.

use super::close_code::CloseCode;

macro_rules! rules {
    ($(#[$outer:meta])* $type:ident($answer:ident: $of:ty) { $($(#[doc = $doc:literal])* $name:ident $value:expr, $explanation:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[doc = $doc])* $name,)*
        }

        impl $type {
            /// All variants, so that a test can demand that each of them occurs.
            pub const ALL: &[$type] = &[$($type::$name,)*];

            #[doc = concat!("The ", stringify!($answer), " that answers it.")]
            #[must_use]
            pub fn $answer(self) -> $of {
                match self { $($type::$name => $value,)* }
            }

            /// Returns an explanation for the peer in one sentence. It never repeats what the peer sent.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $($type::$name => $explanation,)* }
            }

            /// Returns the variant's name, which the test corpus uses too.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($type::$name => stringify!($name),)* }
            }
        }
    };
}

rules! {
    /// A rule of the opening handshake that the client broke. There is one variant for each rule, with the status of
    /// the error response.
    WebSocketRefusal(status: u16) {
        /// The request has a body. A GET that upgrades the connection must not have one.
        BodyPresent 400, "A WebSocket handshake has no body.";
        /// `Connection: Upgrade` is missing (RFC 6455 section 4.2.1).
        ConnectionMissing 400, "The field Connection does not name Upgrade.";
        /// Sec-WebSocket-Extensions is not a list of extensions (RFC 6455 section 9.1).
        ExtensionsMalformed 400, "Sec-WebSocket-Extensions is malformed.";
        /// Sec-WebSocket-Key is not 16 bytes in base64 (RFC 6455 section 4.2.1).
        KeyInvalid 400, "Sec-WebSocket-Key is not 16 bytes in base64.";
        /// Sec-WebSocket-Key is missing (RFC 6455 section 4.2.1).
        KeyMissing 400, "Sec-WebSocket-Key is missing.";
        /// More than one Sec-WebSocket-Key (RFC 6455 section 11.3.1).
        KeyRepeated 400, "Sec-WebSocket-Key is given twice.";
        /// The method is not GET (RFC 6455 section 4.2.1), or not CONNECT in HTTP/2 (RFC 8441 section 4).
        MethodNotAllowed 405, "A WebSocket handshake uses the method GET.";
        /// Sec-WebSocket-Protocol is not a list of different tokens (RFC 6455 section 4.1).
        SubprotocolsMalformed 400, "Sec-WebSocket-Protocol is malformed.";
        /// `Upgrade: websocket` is missing on an address that serves only WebSockets (RFC 9110 section 15.5.22).
        UpgradeMissing 426, "This address serves WebSocket connections only.";
        /// The request is of HTTP/1.0 (RFC 6455 section 4.2.1).
        VersionOfHttpTooOld 400, "A WebSocket handshake needs HTTP/1.1.";
        /// More than one Sec-WebSocket-Version (RFC 6455 section 11.3.5).
        VersionRepeated 400, "Sec-WebSocket-Version is given twice.";
        /// A version other than 13, or none (RFC 6455 section 4.4).
        VersionUnsupported 426, "Sec-WebSocket-Version must be 13.";
    }
}

rules! {
    /// A rule that the peer broke on an established connection. There is one variant for each rule, with the code of
    /// the Close frame.
    WebSocketFault(code: CloseCode) {
        /// A close code that no frame may contain (RFC 6455 section 7.4).
        CloseCodeInvalid CloseCode::PROTOCOL_ERROR, "The close code is not allowed in a frame.";
        /// A Close frame with a payload of one byte (RFC 6455 section 5.5.1).
        ClosePayloadTooShort CloseCode::PROTOCOL_ERROR, "A Close frame has one byte.";
        /// A close reason that is not UTF-8 (RFC 6455 section 5.5.1).
        CloseReasonInvalid CloseCode::INVALID_DATA, "The reason of a Close frame is not UTF-8.";
        /// A continuation frame outside a message (RFC 6455 section 5.4).
        ContinuationUnexpected CloseCode::PROTOCOL_ERROR, "A continuation frame continues nothing.";
        /// A control frame that is fragmented (RFC 6455 section 5.5).
        ControlFragmented CloseCode::PROTOCOL_ERROR, "A control frame is fragmented.";
        /// A control frame with more than 125 bytes (RFC 6455 section 5.5).
        ControlTooLong CloseCode::PROTOCOL_ERROR, "A control frame has more than 125 bytes.";
        /// Compressed data that is not valid DEFLATE, or that ends within a block (RFC 7692 section 7.2.2).
        DeflateInvalid CloseCode::INVALID_DATA, "A compressed message cannot be inflated.";
        /// A length that is encoded in more bytes than necessary (RFC 6455 section 5.2).
        LengthNotMinimal CloseCode::PROTOCOL_ERROR, "A length takes more bytes than it needs.";
        /// A length of at least 2^63 (RFC 6455 section 5.2).
        LengthTooLarge CloseCode::PROTOCOL_ERROR, "A length has its highest bit set.";
        /// A frame of a client without a mask (RFC 6455 section 5.1).
        MaskMissing CloseCode::PROTOCOL_ERROR, "A frame of the client is not masked.";
        /// A frame of a server with a mask (RFC 6455 section 5.1).
        MaskUnexpected CloseCode::PROTOCOL_ERROR, "A frame of the server is masked.";
        /// A message that begins within another one (RFC 6455 section 5.4).
        MessageInterrupted CloseCode::PROTOCOL_ERROR, "A message begins before the last one ended.";
        /// A message that exceeds its limit, measured after inflating.
        MessageTooLarge CloseCode::TOO_LARGE, "The message is larger than this server accepts.";
        /// An opcode that is not assigned (RFC 6455 section 5.2).
        OpcodeUnknown CloseCode::PROTOCOL_ERROR, "An opcode is not known.";
        /// A reserved bit that no negotiated extension uses (RFC 6455 section 5.2, RFC 7692 section 6).
        ReservedBit CloseCode::PROTOCOL_ERROR, "A reserved bit is set.";
        /// A text message that is not UTF-8 (RFC 6455 section 8.1).
        TextInvalid CloseCode::INVALID_DATA, "A text message is not UTF-8.";
    }
}
