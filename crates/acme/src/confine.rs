//! Takes rights from the process that talks with the authority.

use crate::error::AcmeError;

/// How far the rights of this process are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// It can change nothing but its directory, and read the named places alone.
    Full,
    /// The same, except for rights that this kernel does not know.
    Partial,
    /// The system cannot confine a process.
    None,
}

/// Leaves this thread the right to write in `writable` and below, to read at and below each of `readable`, and to
/// connect, and no capability of root (capabilities(7)). It cannot listen or send signals to other processes any more,
/// and gets no rights by executing a program. Children inherit it. Paths that do not exist are left out.
///
/// # Errors
/// [`AcmeError`] if the system can confine a process and did not.
#[cfg(target_os = "linux")]
pub fn confine(writable: &str, readable: &[String]) -> Result<Confinement, AcmeError> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
        path_beneath_rules,
    };
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    // The newest version whose rights are known here; an older kernel confines less.
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
