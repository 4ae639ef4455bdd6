//! The payload of Close frames (RFC 6455 section 5.5.1).

use super::close_code::CloseCode;
use super::fault::WebSocketFault;
use super::frame::ControlPayload;

/// The content of a Close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The code; `None` if the frame was empty.
    pub code: Option<CloseCode>,
    /// The reason, at most 123 bytes. It is meant for logs, not for users.
    pub reason: Box<str>,
}

impl CloseFrame {
    /// Returns the code that is reported to an application: [`CloseCode::NO_STATUS`] if the frame has none.
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
        debug_assert!(reason.len() <= ControlPayload::MOST - 2, "the length of a control frame was checked");
        let reason = str::from_utf8(reason).map_err(|_| WebSocketFault::CloseReasonInvalid)?;
        Ok(Self { code: Some(code), reason: reason.into() })
    }
}

/// Returns the payload of a Close frame. The reason is cut at the end of a character after at most 123 bytes.
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
