//! Session tickets (RFC 5077, RFC 8446 section 4.6.1) that each process of a server can read.
//!
//! The tickets of rustls are sealed with a key of the process, so that a client that comes to another worker, or after
//! a reload, needs a full handshake. Here the keys are given: the supervisor draws secrets, replaces them from time to
//! time, and gives the current one and the previous one to all workers.
//!
//! A ticket is the name of its key, a nonce, and the session sealed with AES-256-GCM. The key is derived from the secret
//! and from the terms for certificates of clients: a ticket proves that the client has been authenticated, so it must
//! not be accepted after an authority or a revocation list has changed.

#[cfg(feature = "aws-lc")]
use aws_lc_rs::{aead, hmac, rand};
#[cfg(not(feature = "aws-lc"))]
use ring::{aead, hmac, rand};

use aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rand::SecureRandom as _;
use rustls::server::ProducesTickets;
use std::fmt;

/// The number of bytes of a secret.
pub const SECRET: usize = 32;
/// The number of bytes of a key's name.
const NAME: usize = 16;
/// The number of seconds for which a ticket is valid. The secrets have to be replaced no sooner than after half of it.
pub const LIFETIME_SECONDS: u32 = 12 * 60 * 60;

/// The secrets of tickets. Tickets are made with the first; those of all are accepted.
#[derive(Clone)]
pub struct TicketSecrets(pub Vec<[u8; SECRET]>);

impl fmt::Debug for TicketSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TicketSecrets").field(&self.0.len()).finish()
    }
}

/// Makes and reads tickets.
pub(crate) struct Tickets {
    /// The key of new tickets comes first.
    keys: Vec<TicketKey>,
    random: rand::SystemRandom,
}

struct TicketKey {
    name: [u8; NAME],
    key: LessSafeKey,
}

impl Tickets {
    /// Returns the tickets of `secrets`. `terms` are bytes that stand for the terms to which tickets are bound.
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
    /// Derives a key and its name. The secret is uniformly random, so one step of HMAC is enough.
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
