//! The responder for static files.
//!
//! [`wire::files`] decides on the response to a request; this module finds, opens and caches files. The thread that
//! polls the engine opens them itself. The time that this blocks the thread is bounded: for a file that is requested
//! often, it looks up a regular file and reads its first bytes at most once a second; sendfile(2) sends all other
//! bytes, a bounded part at a time.

use super::cache::{Cache, Entry, Variant};
use super::directory::{Directory, Stamp, Unavailable};
use crate::deadline::Millis;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use wire::files::{
    Beneath, ByteRange, Coding, Conditions, DecodedPath, FileName, Multipart, Ranges, Representation, Selected,
    Validators, has_content_hash, matches, media_type, method_response, redirect, text_response,
};
use wire::message::{Draft, RequestHead};

/// The path prefixes whose requests are answered with files, and the options.
#[derive(Debug)]
pub struct StaticFiles {
    /// The prefix and the directory of each mapping, the longest prefix first.
    mappings: Vec<(Box<[u8]>, Directory)>,
    /// The value of Cache-Control, which has the time for which a client may use a file without revalidation; `None`:
    /// the field is left out.
    max_age: Option<Arc<str>>,
    /// Patterns of file names whose content never changes, in addition to names with a hash.
    immutable: Vec<Box<[u8]>>,
    /// The name of the file that answers a request for a directory; empty for none.
    index: Box<[u8]>,
    /// True if requests without a matching file are passed to the application.
    falls_through: bool,
}

/// The options of [`StaticFiles`].
#[derive(Clone, Debug, Default)]
pub struct StaticOptions {
    /// The time for which a client may use a file without revalidation, in whole seconds; zero: it has to revalidate
    /// each time. `None`: Cache-Control is left out.
    pub max_age: Option<Duration>,
    /// Patterns ([`matches`]) of file names whose content never changes, in addition to names with a hash.
    pub immutable: Vec<String>,
    /// The name of the file that answers a request for a directory; empty for none.
    pub index: String,
    /// True if requests without a matching file are passed to the application. Otherwise the client receives 404.
    pub falls_through: bool,
    /// True if symbolic links may lead out of the directories.
    pub follows_symlinks: bool,
}

impl StaticFiles {
    /// Opens the directories. Each of `mappings` is a path prefix and the directory with the files beneath that prefix.
    /// A prefix is empty, or begins with a slash and does not end with one.
    ///
    /// # Errors
    /// The index of the first directory that cannot be opened, and the reason.
    pub fn open<'a>(
        mappings: impl Iterator<Item = (&'a str, &'a Path)>,
        options: &StaticOptions,
    ) -> Result<Self, (usize, io::Error)> {
        let mut opened = Vec::new();
        for (at, (prefix, path)) in mappings.enumerate() {
            let directory = Directory::open(path, options.follows_symlinks).map_err(|error| (at, error))?;
            opened.push((prefix.as_bytes().into(), directory));
        }
        opened.sort_by_key(|(prefix, _): &(Box<[u8]>, _)| std::cmp::Reverse(prefix.len()));
        Ok(Self {
            mappings: opened,
            max_age: options.max_age.map(|age| match age.as_secs() {
                0 => "no-cache".into(),
                seconds => format!("max-age={seconds}").into(),
            }),
            immutable: options.immutable.iter().map(|pattern| pattern.as_bytes().into()).collect(),
            index: options.index.as_bytes().into(),
            falls_through: options.falls_through,
        })
    }
}

/// The file responder of one engine.
#[derive(Debug)]
pub(crate) struct FileResponder {
    files: Arc<StaticFiles>,
    cache: Cache,
    immutable: Arc<str>,
    max_age: Arc<str>,
    /// A reusable buffer for a decoded path. The next two fields are buffers for the name of a file and for its cache
    /// key.
    decoded: Vec<u8>,
    name: Vec<u8>,
    key: Vec<u8>,
    /// The source of randomness for the boundaries of multipart bodies.
    random: std::hash::RandomState,
    boundaries: u64,
    /// The message about a file that could not be read; `None` once it has been reported.
    failure: Option<String>,
    failed_at: Option<Millis>,
}

/// A response that is complete except for the protocol's framing.
#[derive(Debug)]
pub(crate) struct Answer {
    head: Head,
    pub(crate) body: Body,
    /// True if the response answers a request for a file.
    pub(crate) is_of_file: bool,
}

#[derive(Debug)]
enum Head {
    Own(Draft),
    Cached(Arc<Entry>, Coding),
}

#[derive(Debug)]
pub(crate) enum Body {
    /// No body, or the text of a page.
    Text(String),
    /// All bytes of a file.
    Whole(Source),
    Part(Source, ByteRange),
    Parts(Source, Multipart),
}

/// The source of the bytes of a file.
#[derive(Debug)]
pub(crate) enum Source {
    Memory(Arc<Entry>, Coding),
    File(Arc<File>, u64),
}

/// The maximum length in bytes of a file that is kept in memory.
const CONTENT_MAX: u64 = 32 << 10;

/// The minimum time in milliseconds between two reports of failures.
const REPORT_EVERY: Millis = 10_000;

/// The Cache-Control field of a file whose content never changes: one year, the longest time that caches use.
const IMMUTABLE: &str = "max-age=31536000, immutable";

impl Answer {
    pub(crate) fn draft(&self) -> &Draft {
        match &self.head {
            Head::Own(draft) => draft,
            Head::Cached(entry, coding) => &entry.variant(*coding).whole,
        }
    }

    /// Creates the response with a page that has nothing to do with files.
    pub(crate) fn other(page: (Draft, String)) -> Self {
        Self { is_of_file: false, ..Self::page(page) }
    }

    fn page((draft, text): (Draft, String)) -> Self {
        Self { head: Head::Own(draft), body: Body::Text(text), is_of_file: true }
    }
}

impl Source {
    /// Returns the bytes if they are in memory, otherwise the file and its length.
    pub(crate) fn bytes(&self) -> Result<&[u8], (&Arc<File>, u64)> {
        match self {
            Source::Memory(entry, coding) => Ok(entry.variant(*coding).content.as_deref().unwrap_or_default()),
            Source::File(file, length) => Err((file, *length)),
        }
    }
}

impl Entry {
    fn variant(&self, coding: Coding) -> &Variant {
        let chosen = self.variants[coding as usize].as_ref().or(self.variants[0].as_ref());
        chosen.expect("what is not encoded is always there")
    }

    fn representation(&self, coding: Coding) -> Representation<'_> {
        let variant = self.variant(coding);
        Representation {
            validators: Validators { etag: variant.etag.as_bytes(), modified: variant.modified },
            length: variant.stamp.length,
            media_type: self.media_type,
            coding,
            varies: self.variants[1..].iter().any(Option::is_some),
            cache_control: &self.cache_control,
        }
    }
}

impl FileResponder {
    pub(crate) fn new(files: Arc<StaticFiles>) -> Self {
        let max_age = files.max_age.clone().unwrap_or_default();
        Self {
            files,
            cache: Cache::default(),
            immutable: IMMUTABLE.into(),
            max_age,
            decoded: Vec::new(),
            name: Vec::new(),
            key: Vec::new(),
            random: std::hash::RandomState::new(),
            boundaries: 0,
            failure: None,
            failed_at: None,
        }
    }

    /// Returns the response to a request at `now`, which is `wall` seconds after 1970; `None` if the application has to
    /// answer the request.
    pub(crate) fn answer(&mut self, head: &RequestHead<'_>, now: Millis, wall: u64) -> Option<Answer> {
        let files = Arc::clone(&self.files);
        let mut decoded = std::mem::take(&mut self.decoded);
        let path = DecodedPath::read(head.target.path, &mut decoded);
        let found =
            files.mappings.iter().enumerate().find_map(|(index, (prefix, directory))| {
                path.beneath(prefix).map(|beneath| (index, directory, beneath))
            });
        let answer = found.and_then(|(index, directory, beneath)| {
            let is_read = matches!(head.method, b"GET" | b"HEAD");
            let answered = match beneath {
                Beneath::Name(name) if is_read => self.serve(head, index, directory, name, now, wall),
                Beneath::Name(name) => self.serve_method(head, directory, name),
                Beneath::Prefix => self.serve_directory(head, directory, b""),
                Beneath::Unusable => Err(Unavailable::Missing),
            };
            match answered {
                Ok(answer) => Some(answer),
                Err(Unavailable::Missing | Unavailable::Directory) if files.falls_through => None,
                Err(unavailable) => Some(self.refuse(head, &unavailable, now)),
            }
        });
        self.decoded = decoded;
        answer
    }

    /// Removes and returns the message about a file that could not be read.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    fn refuse(&mut self, head: &RequestHead<'_>, unavailable: &Unavailable, now: Millis) -> Answer {
        let (status, explanation) = match unavailable {
            Unavailable::Missing | Unavailable::Directory => (404, "There is no such file."),
            Unavailable::Forbidden(_) => (403, "The file cannot be read."),
            Unavailable::Failed(error) if is_shortage(error) => (503, "The server has too many files open."),
            Unavailable::Failed(_) => (500, "The file cannot be read."),
        };
        if let Unavailable::Forbidden(error) | Unavailable::Failed(error) = unavailable
            && self.failed_at.is_none_or(|at| now.saturating_sub(at) >= REPORT_EVERY)
        {
            self.failed_at = Some(now);
            let mut message = String::from("a static file cannot be read: ");
            head.target.path.escape_ascii().for_each(|byte| message.push(char::from(byte)));
            let _ = write!(message, ": {error}");
            self.failure = Some(message);
        }
        Answer::page(text_response(status, explanation))
    }

    fn serve(
        &mut self,
        head: &RequestHead<'_>,
        mapping: usize,
        directory: &Directory,
        name: FileName<'_>,
        now: Millis,
        wall: u64,
    ) -> Result<Answer, Unavailable> {
        let mut path = std::mem::take(&mut self.name);
        path.clear();
        path.extend_from_slice(name.bytes);
        let served = if name.is_directory && self.files.index.is_empty() {
            Err(Unavailable::Missing)
        } else {
            if name.is_directory {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&self.files.index);
            }
            self.serve_file(head, mapping, directory, &path, now, wall)
        };
        self.name = path;
        match served {
            Err(Unavailable::Directory) if !name.is_directory => self.serve_directory(head, directory, name.bytes),
            served => served,
        }
    }

    /// Answers a request for a directory whose path does not end with a slash: redirects to the path with a slash,
    /// because otherwise relative links of the index would lead elsewhere.
    fn serve_directory(
        &self,
        head: &RequestHead<'_>,
        directory: &Directory,
        name: &[u8],
    ) -> Result<Answer, Unavailable> {
        if self.files.index.is_empty() {
            return Err(Unavailable::Missing);
        }
        let separator: &[u8] = if name.is_empty() { b"" } else { b"/" };
        directory.file(&[name, separator, &self.files.index].concat())?;
        if !matches!(head.method, b"GET" | b"HEAD") {
            return Ok(Answer::page(method_response(head.method)));
        }
        // A proxy may have removed this prefix from the path.
        let prefix = head.client.and_then(|client| client.prefix.as_deref()).unwrap_or_default();
        Ok(Answer::page(redirect(&[prefix, head.target.path, b"/"].concat(), head.target.query)))
    }

    /// Answers a request for an existing file whose method is neither GET nor HEAD.
    fn serve_method(
        &self,
        head: &RequestHead<'_>,
        directory: &Directory,
        name: FileName<'_>,
    ) -> Result<Answer, Unavailable> {
        if name.is_directory {
            return self.serve_directory(head, directory, name.bytes);
        }
        match directory.file(name.bytes) {
            Ok(_) => Ok(Answer::page(method_response(head.method))),
            Err(Unavailable::Directory) => self.serve_directory(head, directory, name.bytes),
            Err(unavailable) => Err(unavailable),
        }
    }

    fn serve_file(
        &mut self,
        head: &RequestHead<'_>,
        mapping: usize,
        directory: &Directory,
        name: &[u8],
        now: Millis,
        wall: u64,
    ) -> Result<Answer, Unavailable> {
        let conditions = Conditions::read(head);
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(&mapping.to_le_bytes());
        key.extend_from_slice(name);
        let wanted = Wanted { key: &key, directory, name, now, wall };
        let answer = self.find(&wanted).and_then(|(entry, opened)| {
            if let Some(answer) = self.respond(&conditions, &entry, opened, directory, name)? {
                return Ok(answer);
            }
            // The file has changed since it was checked. The response uses the files that are opened now, even if
            // others replace them meanwhile.
            let (entry, opened) = self.load(&wanted)?;
            let answer = self.respond(&conditions, &entry, opened, directory, name)?;
            Ok(answer.expect("all files of the entry are open"))
        });
        if answer.is_err() {
            self.cache.remove(&key);
        }
        self.key = key;
        answer
    }

    /// Returns the response with a file; `None` if the file is not the one in `entry` any more.
    fn respond(
        &mut self,
        conditions: &Conditions<'_>,
        entry: &Arc<Entry>,
        opened: Opened,
        directory: &Directory,
        name: &[u8],
    ) -> Result<Option<Answer>, Unavailable> {
        let coding = entry.choose(conditions);
        let Some(source) = entry.source(coding, opened, directory, name)? else { return Ok(None) };
        let representation = entry.representation(coding);
        let (draft, body) = match conditions.select(representation.validators, representation.length) {
            Selected::Whole => {
                return Ok(Some(Answer {
                    head: Head::Cached(Arc::clone(entry), coding),
                    body: Body::Whole(source),
                    is_of_file: true,
                }));
            }
            Selected::Ranges(Ranges::Some(1, [range, ..])) => (representation.part(range), Body::Part(source, range)),
            Selected::Ranges(Ranges::Some(count, ranges)) => {
                let multipart = Multipart::new(&representation, &ranges[..count], self.boundary());
                (representation.parts(&multipart), Body::Parts(source, multipart))
            }
            Selected::NotModified => (representation.not_modified(), Body::Text(String::new())),
            Selected::Failed => return Ok(Some(Answer::page(representation.failed()))),
            Selected::Unsatisfiable | Selected::Ranges(_) => {
                return Ok(Some(Answer::page(representation.unsatisfiable())));
            }
        };
        Ok(Some(Answer { head: Head::Own(draft), body, is_of_file: true }))
    }

    fn boundary(&mut self) -> u128 {
        self.boundaries += 1;
        let half = |salt: u64| u128::from(self.random.hash_one((self.boundaries, salt)));
        half(0) << 64 | half(1)
    }

    /// Returns the entry of a file as it is now, or was less than a second ago.
    fn find(&mut self, wanted: &Wanted<'_>) -> Result<(Arc<Entry>, Opened), Unavailable> {
        match self.cache.find(wanted.key, wanted.now) {
            Some((entry, false)) => Ok((entry, Opened::default())),
            Some((entry, true)) if entry.is_current(wanted.directory, wanted.name, wanted.wall)? => {
                self.cache.confirm(wanted.key, wanted.now);
                Ok((entry, Opened::default()))
            }
            _ => self.load(wanted),
        }
    }

    fn load(&mut self, wanted: &Wanted<'_>) -> Result<(Arc<Entry>, Opened), Unavailable> {
        let Wanted { key, directory, name, now, wall } = *wanted;
        let patterns = &self.files.immutable;
        let is_immutable = has_content_hash(name) || patterns.iter().any(|pattern| matches(pattern, name));
        let cache_control = Arc::clone(if is_immutable { &self.immutable } else { &self.max_age });
        let (entry, opened) = Entry::load(directory, name, cache_control, wall)?;
        let entry = Arc::new(entry);
        self.cache.insert(key, Arc::clone(&entry), now);
        Ok((entry, opened))
    }
}

/// The files from which an entry was just made, unless their content is in memory.
type Opened = [Option<File>; Coding::ALL.len()];

/// A file that a request names.
struct Wanted<'a> {
    /// The key of the file in the cache.
    key: &'a [u8],
    directory: &'a Directory,
    /// The name of the file, beneath the directory.
    name: &'a [u8],
    now: Millis,
    /// The current time in seconds since 1970.
    wall: u64,
}

impl Entry {
    fn load(
        directory: &Directory,
        name: &[u8],
        cache_control: Arc<str>,
        wall: u64,
    ) -> Result<(Self, Opened), Unavailable> {
        let (original, file) = Variant::load(directory.file(name)?, Coding::Identity, wall)?;
        let modified = original.stamp.modified;
        let mut variants = [Some(original), None, None, None];
        let mut opened = [file, None, None, None];
        for (coding, found) in encoded(directory, name, modified) {
            // A precompressed file that cannot be read is treated as absent.
            if let Ok((variant, file)) = Variant::load(found, coding, wall) {
                variants[coding as usize] = Some(variant);
                opened[coding as usize] = file;
            }
        }
        let mut entry = Self { media_type: media_type(name), cache_control, variants };
        for coding in Coding::ALL {
            if entry.variants[coding as usize].is_some() {
                let whole = entry.representation(coding).whole();
                if let Some(variant) = &mut entry.variants[coding as usize] {
                    variant.whole = whole;
                }
            }
        }
        Ok((entry, opened))
    }

    /// Returns true if the files of this entry are unchanged.
    fn is_current(&self, directory: &Directory, name: &[u8], wall: u64) -> Result<bool, Unavailable> {
        let is_same = |coding: Coding, stamp: Option<Stamp>| match (&self.variants[coding as usize], stamp) {
            (Some(variant), Some(stamp)) => variant.stamp == stamp && variant.is_final(wall),
            (known, found) => known.is_none() && found.is_none(),
        };
        let (_, stamp) = directory.file(name)?;
        let mut found = [Some(stamp), None, None, None];
        for (coding, (_, stamp)) in encoded(directory, name, stamp.modified) {
            found[coding as usize] = Some(stamp);
        }
        Ok(Coding::ALL.into_iter().all(|coding| is_same(coding, found[coding as usize])))
    }

    /// Returns the coding of the representation that answers a request.
    fn choose(&self, conditions: &Conditions<'_>) -> Coding {
        if self.variants[1..].iter().all(Option::is_none) {
            return Coding::Identity;
        }
        let Some(accepted) = conditions.accepted_codings() else { return Coding::Identity };
        let lengths = |coding: Coding| Some((coding, self.variants[coding as usize].as_ref()?.stamp.length));
        accepted.choose(Coding::ALL.into_iter().filter_map(lengths))
    }

    /// Returns the source of the bytes of a representation; `None` if its file is not the one in this entry any more.
    fn source(
        self: &Arc<Self>,
        coding: Coding,
        mut opened: Opened,
        directory: &Directory,
        name: &[u8],
    ) -> Result<Option<Source>, Unavailable> {
        let variant = self.variant(coding);
        if variant.content.is_some() {
            return Ok(Some(Source::Memory(Arc::clone(self), coding)));
        }
        if let Some(file) = opened[coding as usize].take() {
            return Ok(Some(Source::File(Arc::new(file), variant.stamp.length)));
        }
        let opened = match coding {
            Coding::Identity => directory.file(name),
            _ => directory.file(&[name, coding.suffix().as_bytes()].concat()),
        };
        match opened {
            Ok((file, stamp)) if stamp == variant.stamp => Ok(Some(Source::File(Arc::new(file), stamp.length))),
            Ok(_) => Ok(None),
            Err(Unavailable::Missing) if coding != Coding::Identity => Ok(None),
            Err(unavailable) => Err(unavailable),
        }
    }
}

impl Variant {
    /// Loads a representation. Also returns its file if the content is not in memory.
    fn load((file, stamp): (File, Stamp), coding: Coding, wall: u64) -> Result<(Self, Option<File>), Unavailable> {
        let mut content = None;
        if stamp.length <= CONTENT_MAX && stamp.is_settled(wall) {
            let mut bytes = vec![0; usize::try_from(stamp.length).unwrap_or(0)];
            let is_whole = file.read_exact_at(&mut bytes, 0).is_ok();
            // If the file changed while it was read, its content is not kept, and the response is sent from the file.
            if is_whole && Stamp::of(&file)? == stamp {
                content = Some(bytes.into_boxed_slice());
            }
        }
        let file = content.is_none().then_some(file);
        let variant = Self {
            etag: stamp.etag(coding.token()),
            // RFC 9110 section 8.8.2.1: Last-Modified is never later than the response.
            modified: stamp.modified_seconds().min(wall),
            stamp,
            content,
            whole: Draft::default(),
        };
        Ok((variant, file))
    }

    /// Returns true if loading the variant again at `wall` would give the same result.
    fn is_final(&self, wall: u64) -> bool {
        let could_be_kept = self.stamp.length <= CONTENT_MAX && self.stamp.is_settled(wall);
        self.modified == self.stamp.modified_seconds().min(wall) && self.content.is_some() == could_be_kept
    }
}

/// Returns the precompressed versions of the file `name` that are not older than that file, which was modified at
/// `modified`.
fn encoded(directory: &Directory, name: &[u8], modified: (i64, i64)) -> impl Iterator<Item = (Coding, (File, Stamp))> {
    Coding::ALL.into_iter().skip(1).filter_map(move |coding| {
        let (file, stamp) = directory.file(&[name, coding.suffix().as_bytes()].concat()).ok()?;
        stamp.is_newer_than(modified).then_some((coding, (file, stamp)))
    })
}

/// Returns true if the error means that the process or the system has no free descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| shortages.iter().any(|shortage| shortage.raw_os_error() == code))
}
