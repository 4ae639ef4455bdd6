//! Confinement of the process that communicates with the authority.

use crate::error::AcmeError;

/// The extent to which this process is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// The process can change only its directory, and read only the given paths.
    Full,
    /// Like `Full`, except for rights that this kernel cannot restrict.
    Partial,
    /// The system cannot confine processes.
    None,
}

/// Restricts this thread with Landlock and drops all capabilities of root (capabilities(7)). The thread may still write
/// at and below `writable`, read at and below each of `readable`, and open connections. It can no longer listen or send
/// signals to other processes, and cannot gain rights by executing a program. Its children inherit this. Paths that do
/// not exist are ignored.
///
/// # Errors
/// [`AcmeError`] if the system supports confinement but it failed, or if the capabilities cannot be dropped.
#[cfg(target_os = "linux")]
pub fn confine(writable: &str, readable: &[String]) -> Result<Confinement, AcmeError> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
        path_beneath_rules,
    };
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    // The newest Landlock version that this code supports. An older kernel restricts less.
    let abi = ABI::V6;
    let restrict = || -> Result<RulesetStatus, landlock::RulesetError> {
        let status = Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(readable, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules([writable], AccessFs::from_all(abi)))?
            .restrict_self()?;
        Ok(status.ruleset)
    };
    let restricted = restrict();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets)
        .map_err(|error| AcmeError::new(format_args!("cannot give up root's rights: {error}")))?;
    match restricted {
        Ok(RulesetStatus::FullyEnforced) => Ok(Confinement::Full),
        Ok(RulesetStatus::PartiallyEnforced) => Ok(Confinement::Partial),
        Ok(RulesetStatus::NotEnforced) => Ok(Confinement::None),
        Err(error) => Err(AcmeError::new(format_args!("cannot confine the process: {error}"))),
    }
}

/// Does nothing on systems without Landlock.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn confine(_writable: &str, _readable: &[String]) -> Result<Confinement, AcmeError> {
    Ok(Confinement::None)
}
