//! Orders of certificates.

use crate::error::AcmeError;
use crate::http_client::complete;
use instant_acme::{AuthorizationStatus, ChallengeType, OrderStatus};

/// An order of a certificate for one name.
pub struct Order {
    order: instant_acme::Order,
    thumbprint: String,
}

/// A way to prove control of the ordered name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The type: `http-01`, `tls-alpn-01`, or another one.
    pub kind: String,
    /// The token that the authority chose.
    pub token: String,
    /// The key authorization: the token and the thumbprint of the account's key.
    pub key_authorization: String,
}

impl Order {
    pub(crate) fn new(order: instant_acme::Order, thumbprint: &str) -> Self {
        Self { order, thumbprint: thumbprint.to_owned() }
    }

    /// Returns the URL of the order.
    pub fn url(&self) -> &str {
        self.order.url()
    }

    /// Returns the challenges, one of which must be completed; none if the authority has already validated the name.
    ///
    /// # Errors
    /// [`AcmeError`], also if the authorization has failed or expired.
    pub fn challenges(&mut self) -> Result<Vec<Challenge>, AcmeError> {
        let mut found = Vec::new();
        let mut authorizations = self.order.authorizations();
        while let Some(authorization) = complete(authorizations.next()) {
            let authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => {}
                AuthorizationStatus::Pending => {
                    found.extend(authorization.challenges.iter().map(|challenge| Challenge {
                        kind: name_of(&challenge.r#type).to_owned(),
                        token: challenge.token.clone(),
                        key_authorization: format!("{}.{}", challenge.token, self.thumbprint),
                    }));
                }
                other => return Err(AcmeError::new(format_args!("the authorization is {other:?}"))),
            }
        }
        Ok(found)
    }

    /// Asks the authority to validate the challenges of type `kind`, whose responses are in place.
    ///
    /// # Errors
    /// [`AcmeError`]. The authority validates the challenge later, so its failure is not reported here.
    pub fn answer(&mut self, kind: &str) -> Result<(), AcmeError> {
        let mut authorizations = self.order.authorizations();
        while let Some(authorization) = complete(authorizations.next()) {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let kind = authorization.challenges.iter().map(|one| &one.r#type).find(|one| name_of(one) == kind).cloned();
            let challenge = kind.and_then(|kind| authorization.challenge(kind));
            let mut challenge = challenge.ok_or_else(|| AcmeError::new("the authority offers no such challenge"))?;
            complete(challenge.set_ready())?;
        }
        Ok(())
    }

    /// Requests the state of the order: `pending`, `ready`, `processing`, `valid` or `invalid`.
    ///
    /// # Errors
    /// [`AcmeError`].
    pub fn refresh(&mut self) -> Result<&'static str, AcmeError> {
        let state = complete(self.order.refresh())?;
        Ok(match state.status {
            OrderStatus::Pending => "pending",
            OrderStatus::Ready => "ready",
            OrderStatus::Processing => "processing",
            OrderStatus::Valid => "valid",
            OrderStatus::Invalid => "invalid",
        })
    }

    /// Requests the reason why the order is invalid.
    ///
    /// # Errors
    /// [`AcmeError`] if the authority does not give the reason.
    pub fn failure(&mut self) -> Result<AcmeError, AcmeError> {
        let mut authorizations = self.order.authorizations();
        while let Some(authorization) = complete(authorizations.next()) {
            let mut authorization = authorization?;
            let state = complete(authorization.refresh())?;
            if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                return Ok(AcmeError::of_problem(problem));
            }
        }
        let error = self.order.state().error.as_ref();
        Ok(error.map_or_else(|| AcmeError::new("the authority gives no reason"), AcmeError::of_problem))
    }

    /// Requests the certificate. `request` is the certificate request in DER.
    ///
    /// # Errors
    /// [`AcmeError`].
    pub fn finalize(&mut self, request: &[u8]) -> Result<(), AcmeError> {
        Ok(complete(self.order.finalize_csr(request))?)
    }

    /// Returns the certificate and its issuers in PEM; `None` while the authority is still issuing it.
    ///
    /// # Errors
    /// [`AcmeError`], also if the order failed.
    pub fn certificate(&mut self) -> Result<Option<String>, AcmeError> {
        Ok(complete(self.order.certificate())?)
    }
}

fn name_of(kind: &ChallengeType) -> &str {
    match kind {
        ChallengeType::Http01 => "http-01",
        ChallengeType::Dns01 => "dns-01",
        ChallengeType::TlsAlpn01 => "tls-alpn-01",
        ChallengeType::Unknown(name) => name,
        _ => "unknown",
    }
}
