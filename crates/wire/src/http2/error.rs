//! The rules of HTTP/2 that a peer can break, and their error codes (RFC 9113 sections 5.4 and 7).

/// An error code of RFC 9113 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// No error.
    NoError = 0,
    /// The peer broke a rule that has no code of its own.
    ProtocolError = 1,
    /// An internal error of the sender.
    InternalError = 2,
    /// More bytes than a window allows, or a window that exceeds its maximum.
    FlowControlError = 3,
    /// SETTINGS were not acknowledged in time.
    SettingsTimeout = 4,
    /// A frame on a stream that its sender has closed.
    StreamClosed = 5,
    /// A frame that is too large or too small.
    FrameSizeError = 6,
    /// The request has not been processed, and may be sent again.
    RefusedStream = 7,
    /// The stream is not needed any more.
    Cancel = 8,
    /// The compression state cannot be maintained.
    CompressionError = 9,
    /// The TCP connection of a CONNECT tunnel was reset.
    ConnectError = 10,
    /// The peer behaves as only an attacker would.
    EnhanceYourCalm = 11,
    /// The encryption of the connection is too weak.
    InadequateSecurity = 12,
    /// The resource is served by HTTP/1.1 only.
    Http11Required = 13,
}

impl ErrorCode {
    /// Returns the name of a code as in RFC 9113 section 7, or `unknown`.
    #[must_use]
    pub fn name_of(code: u32) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        usize::try_from(code).ok().and_then(|code| NAMES.get(code)).copied().unwrap_or("unknown")
    }
}

macro_rules! violations {
    ($($(#[doc = $doc:literal])* $name:ident $code:ident $explanation:literal,)*) => {
        /// A rule of HTTP/2 that the peer broke. There is one variant for each rule. A violation ends the connection,
        /// or only the stream.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Violation {
            /// All variants, so that a test can demand that each of them occurs.
            pub const ALL: &[Violation] = &[$(Violation::$name,)*];

            /// Returns the code that is sent for this violation.
            #[must_use]
            pub fn code(self) -> ErrorCode {
                match self { $(Violation::$name => ErrorCode::$code,)* }
            }

            /// Returns an explanation for the peer in one sentence, which GOAWAY carries. It never repeats bytes of the
            /// peer.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(Violation::$name => $explanation,)* }
            }

            /// Returns the variant's name, which the test cases use too.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Violation::$name => stringify!($name),)* }
            }
        }
    };
}

violations! {
    /// A header block that HPACK cannot decode (RFC 9113 section 4.3).
    CompressionInvalid CompressionError "The header compression is broken.",
    /// A body that is longer or shorter than Content-Length (RFC 9113 section 8.1.1).
    ContentLengthWrong ProtocolError "The body is not as long as content-length says.",
    /// Another frame in the middle of a header block (RFC 9113 section 4.3).
    ContinuationExpected ProtocolError "A header block is interrupted by another frame.",
    /// CONTINUATION without a header block (RFC 9113 section 6.10).
    ContinuationUnexpected ProtocolError "CONTINUATION follows no header block.",
    /// More frames that cost work and carry nothing than any client needs.
    FramesTooMany EnhanceYourCalm "There are too many frames that carry nothing.",
    /// A frame that is larger than the receiver allows (RFC 9113 section 4.2).
    FrameTooLarge FrameSizeError "A frame is larger than SETTINGS_MAX_FRAME_SIZE.",
    /// A frame whose length is not valid for its type (RFC 9113 section 6).
    FrameLengthInvalid FrameSizeError "A frame does not have the length of its type.",
    /// A request with fields that HTTP/2 calls malformed (RFC 9113 sections 8.2 and 8.3).
    HeadMalformed ProtocolError "The header fields are malformed.",
    /// A header block that is many times larger than the limit, or is split into too many frames.
    HeadTooLarge EnhanceYourCalm "The header block is much larger than this server accepts.",
    /// A frame on a stream that was never opened (RFC 9113 section 5.1).
    IdleStream ProtocolError "A frame is on a stream that was not opened.",
    /// Padding that is as long as its frame, or longer (RFC 9113 section 6.1).
    PaddingInvalid ProtocolError "The padding is longer than its frame.",
    /// The first bytes are not the preface (RFC 9113 section 3.4).
    PrefaceInvalid ProtocolError "The connection does not begin with the preface of HTTP/2.",
    /// A stream that depends on itself (RFC 7540 section 5.3.1), or a `PRIORITY_UPDATE` for stream 0 (RFC 9218 section
    /// 7.1).
    PriorityInvalid ProtocolError "A priority is malformed.",
    /// `PUSH_PROMISE` from a client (RFC 9113 section 8.4).
    PushFromClient ProtocolError "A client cannot push.",
    /// More requests that are opened and immediately reset than any client sends (CVE-2023-44487).
    ResetsTooMany EnhanceYourCalm "Too many requests were reset.",
    /// More resets by the server than a correct client causes (CVE-2025-8671).
    ProvokedResetsTooMany EnhanceYourCalm "Too many streams had to be reset.",
    /// A setting with an invalid value (RFC 9113 section 6.5.2).
    SettingInvalid ProtocolError "A setting has a value that is not allowed.",
    /// A window in SETTINGS that is larger than 2^31-1 (RFC 9113 section 6.5.2).
    SettingWindowTooLarge FlowControlError "SETTINGS_INITIAL_WINDOW_SIZE is too large.",
    /// The first frame is not SETTINGS (RFC 9113 section 3.4).
    SettingsMissing ProtocolError "The first frame is not SETTINGS.",
    /// A frame on a stream that the client has ended, reset or left out (RFC 9113 sections 5.1 and 5.1.1).
    StreamEnded StreamClosed "A frame follows the end of its stream.",
    /// A new stream with an even number, or with a smaller number than an earlier one (RFC 9113 section 5.1.1).
    StreamIdInvalid ProtocolError "A new stream has a number that is not allowed.",
    /// More streams at a time than this server allows (RFC 9113 section 5.1.2).
    StreamsTooMany RefusedStream "There are too many streams.",
    /// A connection frame with a stream number, or a stream frame without one (RFC 9113 section 6).
    StreamZeroMisused ProtocolError "A frame is on the wrong one of connection and stream.",
    /// More body bytes than the window allows (RFC 9113 section 6.9.1).
    WindowExceeded FlowControlError "More bytes were sent than the window allows.",
    /// A window that exceeds 2^31-1 (RFC 9113 section 6.9.1).
    WindowTooLarge FlowControlError "A window has become too large.",
    /// A `WINDOW_UPDATE` by 0 (RFC 9113 section 6.9).
    WindowUpdateEmpty ProtocolError "WINDOW_UPDATE does not enlarge the window.",
}
