//! Session tickets (RFC 5077, RFC 8446 section 4.6.1) that all processes of a server can read.
//!
//! rustls encrypts tickets with a key of the process, so a client that reaches another worker, or returns after a
//! reload, needs a full handshake. Here all workers share the keys: the supervisor generates secrets, replaces them
//! from time to time, and gives the current and the previous one to all workers.
//!
//! A ticket consists of the name of its key, a nonce, and the session encrypted with AES-256-GCM. The key is derived
//! from the secret and the settings for client certificates: a ticket proves that the client was authenticated, so it
//! must become invalid when an authority or a revocation list changes.

#[cfg(feature = "aws-lc")]
use aws_lc_rs::{aead, hmac, rand};
#[cfg(not(feature = "aws-lc"))]
use ring::{aead, hmac, rand};

use aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rand::SecureRandom as _;
use rustls::server::ProducesTickets;
use std::fmt;

/// The length of a secret in bytes.
pub const SECRET: usize = 32;
/// The length of a key's name in bytes.
const NAME: usize = 16;
/// The lifetime of a ticket in seconds. A secret must be used for at least half of it before it is replaced.
pub const LIFETIME_SECONDS: u32 = 12 * 60 * 60;

/// The secrets of tickets. New tickets use the first one; tickets of all of them are accepted.
#[derive(Clone)]
pub struct TicketSecrets(pub Vec<[u8; SECRET]>);

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketSecrets").field(&self.0.len()).finish()
    }
}

/// The encryption and decryption of tickets.
pub(crate) struct Tickets {
    /// The keys. New tickets use the first one.
    keys: Vec<TicketKey>,
    random: rand::SystemRandom,
}

struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl Tickets {
    /// Derives the keys of `secrets`. `terms` identifies the settings to which tickets are bound.
    pub(crate) fn new(secrets: &TicketSecrets, terms: &[u8]) -> Self {
        let keys = secrets.0.iter().map(|secret| TicketKey::derive(secret, terms)).collect();
        Self { keys, random: rand::SystemRandom::new() }
    }

    fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        let TicketKey { name, key } = self.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = session.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], &nonce, &sealed].concat())
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let TicketKey { key, .. } = self.keys.iter().find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let opened = key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(name), &mut sealed).ok()?;
        Some(opened.to_vec())
    }
}

impl TicketKey {
    /// Derives a key and its name. One step of HMAC is enough, because the secret is uniformly random.
    fn derive(secret: &[u8; SECRET], terms: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |purpose: &[u8]| hmac::sign(&secret, &[purpose, &[0], terms].concat());
        let mut name = [0; NAME];
        name.copy_from_slice(&derived(b"name of a ticket's key").as_ref()[..NAME]);
        let key = UnboundKey::new(&AES_256_GCM, derived(b"key of tickets").as_ref());
        Self { name, key: LessSafeKey::new(key.expect("the key has the length of a digest")) }
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        !self.keys.is_empty()
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_SECONDS
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.seal(session)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(secrets: &[u8], terms: &[u8]) -> Tickets {
        Tickets::new(&TicketSecrets(secrets.iter().map(|byte| [*byte; SECRET]).collect()), terms)
    }

    #[test]
    fn ticket_is_read_by_another_process_and_after_one_rotation() {
        let ticket = tickets(&[1], b"").encrypt(b"session").unwrap();
        assert_eq!(tickets(&[1], b"").decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(tickets(&[2, 1], b"").decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(tickets(&[3, 2], b"").decrypt(&ticket), None);
    }

    #[test]
    fn ticket_is_not_read_under_other_terms_for_clients() {
        let ticket = tickets(&[1], b"one authority").encrypt(b"session").unwrap();
        assert_eq!(tickets(&[1], b"two authorities").decrypt(&ticket), None);
    }

    #[test]
    fn ticket_that_was_changed_anywhere_is_not_read() {
        let tickets = tickets(&[1], b"");
        let ticket = tickets.encrypt(b"session").unwrap();
        for index in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[index] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "byte {index}");
            assert_eq!(tickets.decrypt(&ticket[..index]), None, "{index} bytes");
        }
    }

    #[test]
    fn two_tickets_of_one_session_differ() {
        let tickets = tickets(&[1], b"");
        assert_ne!(tickets.encrypt(b"session"), tickets.encrypt(b"session"));
    }

    #[test]
    fn no_secrets_make_no_tickets() {
        let tickets = tickets(&[], b"");
        assert!(!tickets.enabled());
        assert_eq!(tickets.encrypt(b"session"), None);
    }
}
