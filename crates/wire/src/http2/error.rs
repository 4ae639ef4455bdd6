//! The rules of HTTP/2 that a peer can break, and the codes that answer them (RFC 9113 sections 5.4 and 7).

/// An error code of RFC 9113 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    NoError = 0,
    /// The peer broke a rule that has no code of its own.
    ProtocolError = 1,
    /// This end is wrong.
    InternalError = 2,
    /// More bytes than a window allows, or a window that is too large.
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
    /// The state of the header compression is lost.
    CompressionError = 9,
    /// A connection of CONNECT was reset.
    ConnectError = 10,
    /// The peer does what only an attacker does.
    EnhanceYourCalm = 11,
    /// The encryption of the connection is too weak.
    InadequateSecurity = 12,
    /// The resource is served by HTTP/1.1 alone.
    Http11Required = 13,
}

impl ErrorCode {
    /// Returns the name of a code as RFC 9113 section 7 spells it; that of an unknown one is `unknown`.
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
        /// A rule of HTTP/2 that the peer broke: one variant a rule. It ends the connection, or only the stream.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Violation {
            /// Every variant, so that a test can demand that each is reached.
            pub const ALL: &[Violation] = &[$(Violation::$name,)*];

            /// Returns the code that answers it.
            #[must_use]
            pub fn code(self) -> ErrorCode {
                match self { $(Violation::$name => ErrorCode::$code,)* }
            }

            /// Returns one sentence for the peer, which GOAWAY carries. It never repeats bytes of the peer.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(Violation::$name => $explanation,)* }
            }

            /// Returns the variant's name, as the cases of the tests spell it.
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
    /// A frame in the middle of a header block (RFC 9113 section 4.3).
    ContinuationExpected ProtocolError "A header block is interrupted by another frame.",
    /// CONTINUATION without a header block (RFC 9113 section 6.10).
    ContinuationUnexpected ProtocolError "CONTINUATION follows no header block.",
    /// Frames that cost work and carry nothing, more than any client needs.
    FramesTooMany EnhanceYourCalm "There are too many frames that carry nothing.",
    /// A frame that is larger than this end allows (RFC 9113 section 4.2).
    FrameTooLarge FrameSizeError "A frame is larger than SETTINGS_MAX_FRAME_SIZE.",
    /// A frame whose length is not that of its type (RFC 9113 section 6).
    FrameLengthInvalid FrameSizeError "A frame does not have the length of its type.",
    /// The fields of a request that HTTP/2 calls malformed (RFC 9113 sections 8.2 and 8.3).
    HeadMalformed ProtocolError "The header fields are malformed.",
    /// A header block that is many times larger than this server accepts, or is cut into too many frames.
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
    /// More requests that were opened and reset at once than any client sends (CVE-2023-44487).
    ResetsTooMany EnhanceYourCalm "Too many requests were reset.",
    /// More streams than any client makes this server reset (CVE-2025-8671).
    ProvokedResetsTooMany EnhanceYourCalm "Too many streams had to be reset.",
    /// A setting with a value that it cannot have (RFC 9113 section 6.5.2).
    SettingInvalid ProtocolError "A setting has a value that is not allowed.",
    /// A window in SETTINGS that is larger than 2^31-1 (RFC 9113 section 6.5.2).
    SettingWindowTooLarge FlowControlError "SETTINGS_INITIAL_WINDOW_SIZE is too large.",
    /// The first frame is not SETTINGS (RFC 9113 section 3.4).
    SettingsMissing ProtocolError "The first frame is not SETTINGS.",
    /// A frame on a stream that the client has ended or reset (RFC 9113 section 5.1).
    StreamEnded StreamClosed "A frame follows the end of its stream.",
    /// A stream of an even number, or of a smaller number than one before (RFC 9113 section 5.1.1).
    StreamIdInvalid ProtocolError "A new stream has a number that is not allowed.",
    /// More streams at a time than this server allows (RFC 9113 section 5.1.2).
    StreamsTooMany RefusedStream "There are too many streams.",
    /// A frame of the connection on a stream, or a frame of a stream on the connection (RFC 9113 section 6).
    StreamZeroMisused ProtocolError "A frame is on the wrong one of connection and stream.",
    /// More body than the window allows (RFC 9113 section 6.9.1).
    WindowExceeded FlowControlError "More bytes were sent than the window allows.",
    /// A window that has grown beyond 2^31-1 (RFC 9113 section 6.9.1).
    WindowTooLarge FlowControlError "A window has become too large.",
    /// `WINDOW_UPDATE` by 0 (RFC 9113 section 6.9).
    WindowUpdateEmpty ProtocolError "WINDOW_UPDATE does not enlarge the window.",
}
