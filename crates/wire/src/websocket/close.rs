//! Close codes and the payload of Close frames (RFC 6455 sections 5.5.1 and 7.4).

use super::fault::WebSocketFault;
use super::frame::ControlPayload;

/// Why a connection is closed: a code that may appear in a Close frame.
///
/// Those are 1000 to 1003 and 1007 to 1014 (RFC 6455 section 7.4.1 and IANA's registry), 3000 to 3999 for frameworks and
/// 4000 to 4999 for applications. 1005, 1006 and 1015 stand for what no frame said, so no frame may say them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, or the browser leaves the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// A rule of RFC 6455 is broken.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// Data of a kind that is not accepted.
    pub const UNSUPPORTED: Self = Self(1003);
    /// Data that is not what its kind says, such as text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// What the application does not allow.
    pub const POLICY: Self = Self(1008);
    /// A message that is too large.
    pub const TOO_LARGE: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server restarts; the client may connect again.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The server is overloaded; the client may connect again later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// What is reported of a Close frame without a code. No frame carries it.
    pub const NO_STATUS: u16 = 1005;
    /// What is reported of a connection that ended without a Close frame. No frame carries it.
    pub const ABNORMAL: u16 = 1006;

    /// The code `number`; `None` if no Close frame may carry it.
    #[must_use]
    pub fn new(number: u16) -> Option<Self> {
        matches!(number, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(number))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// What a Close frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The code; `None` if the frame was empty.
    pub code: Option<CloseCode>,
    /// The reason, at most 123 bytes; for logs, not for people.
    pub reason: Box<str>,
}

impl CloseFrame {
    /// The code as it is reported to an application: [`CloseCode::NO_STATUS`] if there is none.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.code.map_or(CloseCode::NO_STATUS, CloseCode::number)
    }

    /// Reads the payload of a Close frame.
    pub(super) fn read(payload: &[u8]) -> Result<Self, WebSocketFault> {
        let [high, low, reason @ ..] = payload else {
            return match payload {
                [] => Ok(Self { code: None, reason: Box::default() }),
                _ => Err(WebSocketFault::ClosePayloadTooShort),
            };
        };
        let code = CloseCode::new(u16::from_be_bytes([*high, *low])).ok_or(WebSocketFault::CloseCodeInvalid)?;
        let reason = str::from_utf8(reason).map_err(|_| WebSocketFault::CloseReasonInvalid)?;
        Ok(Self { code: Some(code), reason: reason.into() })
    }
}

/// The payload of a Close frame. A reason beyond 123 bytes is cut where a character ends.
pub(super) fn payload(code: Option<CloseCode>, reason: &str) -> ControlPayload {
    let mut payload = ControlPayload::default();
    if let Some(code) = code {
        payload.extend(&code.number().to_be_bytes());
        let most = reason.len().min(ControlPayload::MOST - 2);
        let end = (0..=most).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
        payload.extend(&reason.as_bytes()[..end]);
    }
    payload
}
