//! Lists of trusted addresses.

use core::net::IpAddr;
use std::fmt;

/// Trusted addresses: networks, peers on Unix sockets, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    networks: Box<[Network]>,
    unix: bool,
    all: bool,
}

/// The addresses whose first `length` bits equal those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    length: u8,
}

/// An error in an entry of a list of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressListError {
    entry: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    NotAnAddress,
    BadLength(u8),
    HostBits(IpAddr, u8),
    Everything,
    AllWithOthers,
}

impl Trusted {
    /// Reads a comma-separated list of addresses, networks such as `10.0.0.0/8`, `unix` and `all`.
    ///
    /// # Errors
    /// The wrong entry, and what to write instead.
    pub fn read(text: &str) -> Result<Self, AddressListError> {
        let mut trusted = Self::default();
        let mut networks = Vec::new();
        let entries = || text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        for entry in entries() {
            let fail = |reason| AddressListError { entry: entry.to_owned(), reason };
            match entry {
                "unix" => trusted.unix = true,
                "all" if entries().count() > 1 => return Err(fail(Reason::AllWithOthers)),
                "all" => trusted.all = true,
                entry => networks.push(Network::read(entry).map_err(fail)?),
            }
        }
        trusted.networks = networks.into();
        Ok(trusted)
    }

    /// Returns true if the list has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if all peers are trusted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Returns true if a peer with this IP address is trusted; `None` means a peer on a Unix socket.
    #[must_use]
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        self.all
            || match address {
                None => self.unix,
                Some(address) => {
                    let address = address.to_canonical();
                    self.networks.iter().any(|network| network.contains(address))
                }
            }
    }
}

impl Network {
    fn read(text: &str) -> Result<Self, Reason> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| Reason::NotAnAddress)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => bits,
            Some(text) => {
                let is_number = text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
                let length = is_number.then(|| text.parse().ok()).flatten().filter(|&length| length <= bits);
                length.ok_or(Reason::BadLength(bits))?
            }
        };
        if length == 0 {
            return Err(Reason::Everything);
        }
        // IPv4 addresses are compared in IPv4 form.
        let network = match address.to_canonical() {
            canonical @ IpAddr::V4(_) if address.is_ipv6() && length >= 96 => {
                Self { address: canonical, length: length - 96 }
            }
            _ => Self { address, length },
        };
        if network.length == 0 {
            return Err(Reason::Everything);
        }
        let first = network.first();
        if first != network.address {
            return Err(Reason::HostBits(first, network.length));
        }
        Ok(network)
    }

    /// Returns the first address of the network.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self { address, ..*self }.first() == self.address
    }
}

impl fmt::Display for AddressListError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.entry;
        match &self.reason {
            Reason::NotAnAddress if entry == "*" => write!(out, "'*' is not an address; write all"),
            Reason::NotAnAddress if entry.eq_ignore_ascii_case("localhost") => {
                write!(out, "{entry:?} is a name, not an address; write 127.0.0.1,::1")
            }
            Reason::NotAnAddress => write!(
                out,
                "{entry:?} is neither an IP address nor a network; write addresses, networks such as 10.0.0.0/8, unix \
                 for Unix sockets, or all"
            ),
            Reason::BadLength(bits) => {
                write!(out, "{entry:?}: the number of bits behind the slash is a number from 1 to {bits}")
            }
            Reason::HostBits(first, length) => write!(
                out,
                "{entry:?} has bits set behind the first {length}; write {first}/{length} for the network, or leave the \
                 slash out for one address"
            ),
            Reason::Everything => write!(
                out,
                "{entry:?} is every address; write all, which takes the last address of the list and never what the \
                 client has written"
            ),
            Reason::AllWithOthers => write!(out, "'all' stands alone, because it includes every other entry"),
        }
    }
}

impl std::error::Error for AddressListError {}
