//! Directories that open files beneath them, and never outside of them.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A directory that is kept open, so that paths are always looked up in the same directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    lookup: Lookup,
}

/// The way in which a name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookup {
    /// The kernel restricts the look-up to the directory (openat2(2), `RESOLVE_BENEATH`). It follows symbolic links,
    /// but fails for those that lead out of the directory.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Beneath,
    /// Component by component, without following symbolic links: for kernels before Linux 5.6, sandboxes that forbid
    /// openat2, and other systems.
    ByComponent,
    /// Symbolic links may lead anywhere.
    Anywhere,
}

/// The reason why a file is not available.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// The file does not exist, or must not be served: it is not a regular file, or is outside of the directory.
    Missing,
    /// The name is that of a directory.
    Directory,
    /// The process may not read the file.
    Forbidden(io::Error),
    /// The system could not open the file.
    Failed(io::Error),
}

/// The metadata that shows whether a file is unchanged: everything that the kernel records of its identity and its last
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) length: u64,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, i64),
    changed: (i64, i64),
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// The maximum number of attempts if a concurrent rename disturbs a look-up (openat2(2), EAGAIN).
const ATTEMPTS: usize = 4;

impl Directory {
    /// Opens the directory at `path`. `follows_symlinks`: symbolic links may lead out of it.
    pub(crate) fn open(path: &Path, follows_symlinks: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = openat(CWD, path, flags, Mode::empty())?;
        let lookup = if follows_symlinks { Lookup::Anywhere } else { Lookup::safest(&descriptor) };
        Ok(Self { descriptor, lookup })
    }

    /// Opens a directory that looks names up as on a kernel without openat2.
    #[cfg(test)]
    pub(crate) fn by_component(path: &Path) -> io::Result<Self> {
        Ok(Self { lookup: Lookup::ByComponent, ..Self::open(path, false)? })
    }

    /// Opens the regular file `name`, whose segments must follow the rules of [`FileName`](wire::files::FileName). A
    /// FIFO or a device is opened without waiting, recognized, and closed.
    pub(crate) fn file(&self, name: &[u8]) -> Result<(File, Stamp), Unavailable> {
        if name.is_empty() {
            return Err(Unavailable::Directory);
        }
        let file = File::from(self.lookup(name).map_err(Unavailable::from)?);
        let stamp = Stamp::of(&file)?;
        Ok((file, stamp))
    }

    fn lookup(&self, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        match self.lookup {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Lookup::Beneath => beneath(&self.descriptor, name),
            Lookup::Anywhere => openat(&self.descriptor, name, FLAGS, Mode::empty()),
            Lookup::ByComponent => {
                let Some(slash) = name.iter().rposition(|&b| b == b'/') else {
                    return openat(&self.descriptor, name, FLAGS | OFlags::NOFOLLOW, Mode::empty());
                };
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut parent: Option<OwnedFd> = None;
                for segment in name[..slash].split(|&b| b == b'/') {
                    let at = parent.as_ref().unwrap_or(&self.descriptor);
                    parent = Some(openat(at, segment, flags, Mode::empty())?);
                }
                let at = parent.as_ref().unwrap_or(&self.descriptor);
                openat(at, &name[slash + 1..], FLAGS | OFlags::NOFOLLOW, Mode::empty())
            }
        }
    }
}

impl Lookup {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn safest(descriptor: &impl AsFd) -> Self {
        // ENOSYS if the kernel has no such system call, EPERM if a sandbox forbids it.
        if beneath(descriptor, b".").is_ok() { Lookup::Beneath } else { Lookup::ByComponent }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn safest(_descriptor: &impl AsFd) -> Self {
        Lookup::ByComponent
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn beneath(directory: &impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};

    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 1..ATTEMPTS {
        match openat2(directory, name, FLAGS, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    openat2(directory, name, FLAGS, Mode::empty(), resolve)
}

impl From<Errno> for Unavailable {
    fn from(error: Errno) -> Self {
        match error {
            // XDEV: a symbolic link leads out. LOOP: there are too many links, or a link is not followed. NXIO: a FIFO
            // or a socket. NODEV: a device. INVAL and ILSEQ: a name that the file system does not support.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL
            | Errno::ILSEQ
            | Errno::STALE => Unavailable::Missing,
            Errno::ACCESS | Errno::PERM => Unavailable::Forbidden(error.into()),
            _ => Unavailable::Failed(error.into()),
        }
    }
}

impl Stamp {
    /// Returns the stamp of an open file. Fails if it is not a regular file.
    pub(crate) fn of(file: &File) -> Result<Self, Unavailable> {
        let found = file.metadata().map_err(Unavailable::Failed)?;
        if found.is_dir() {
            return Err(Unavailable::Directory);
        }
        if !found.is_file() {
            return Err(Unavailable::Missing);
        }
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            length: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Returns the time of the last change of the content, in whole seconds since 1970.
    pub(crate) fn modified_seconds(&self) -> u64 {
        u64::try_from(self.modified.0).unwrap_or(0)
    }

    /// Returns true if any further change would change the stamp: the last change is longer ago than the granularity of
    /// file systems' clocks. Otherwise the content of the file must not be cached.
    pub(crate) fn is_settled(&self, wall: u64) -> bool {
        let changed = u64::try_from(self.changed.0.max(self.modified.0)).unwrap_or(0);
        changed + 2 <= wall
    }

    /// Returns true if a file derived from another is up to date. `source` is the modification time of the other one. A
    /// tool that copies that time may copy whole seconds only.
    pub(crate) fn is_newer_than(&self, source: (i64, i64)) -> bool {
        self.modified >= source || self.modified == (source.0, 0)
    }

    /// Returns a strong entity tag with its quotes. The tag changes with the content, even if the modification time was
    /// set back, or another file with the same times has replaced the file.
    pub(crate) fn etag(&self, coding: &str) -> String {
        let Self { device, inode, length, modified, changed } = self;
        let (seconds, nanoseconds) = *modified;
        // FNV-1a distinguishes files. An attacker cannot choose these numbers, and so cannot construct a collision.
        let words = [*device, *inode, changed.0.cast_unsigned(), changed.1.cast_unsigned()];
        let identity = words
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let dash = if coding.is_empty() { "" } else { "-" };
        format!("\"{length:x}-{seconds:x}.{nanoseconds:x}-{identity:x}{dash}{coding}\"")
    }
}
