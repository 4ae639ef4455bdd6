//! Close codes (RFC 6455 section 7.4).

/// The code in a Close frame: the reason for closing the connection.
///
/// Valid codes are 1000 to 1003 and 1007 to 1014 (RFC 6455 section 7.4.1 and IANA's registry), 3000 to 3999 for
/// frameworks and 4000 to 4999 for applications. 1005, 1006 and 1015 are only reported to applications, and must not be
/// in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// Normal closure.
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or the browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke a rule of RFC 6455.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A message does not match its type, such as text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// A message violates a policy of the application.
    pub const POLICY: Self = Self(1008);
    /// A message is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server restarts; the client may reconnect.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The server is overloaded; the client may reconnect later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// The code that is reported for a Close frame without a code. It is never sent.
    pub const NO_STATUS: u16 = 1005;
    /// The code that is reported for a connection that ended without a Close frame. It is never sent.
    pub const ABNORMAL: u16 = 1006;

    /// Returns the code `number`; `None` if it must not be in a Close frame.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(number))
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}
