//! Tests that no path leads out of the directory, in a tree with everything that could lead out; and that cached
//! content agrees with the files.

use super::directory::{Directory, Unavailable};
use super::files::{Answer, Body, FileResponder, StaticFiles, StaticOptions};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::message::{BodyLength, Form, RequestHead, Target, Version};

/// The first bytes of every file in the tree, and of no file outside of it.
const INSIDE: &[u8] = b"inside";

/// A time at which the content of files that have just been written may be cached.
const LATER: u64 = 1 << 40;

/// Creates the tree in `public`, and `outside` next to it.
fn tree() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let public = root.path().join("public");
    let outside = root.path().join("outside");
    for directory in ["a/b/c", "a/.hidden", ".well-known", ".git", "x y", "swap", "%2e%2e", "é"] {
        fs::create_dir_all(public.join(directory)).unwrap();
    }
    fs::create_dir_all(outside.join("b/c")).unwrap();
    for file in
        ["f", "a/f", "a/b/f", "a/b/c/f", "x y/f", "é/f", "swap/f", ".well-known/f", "%2e%2e/f", "a/..f", "a/f..", "a/-"]
    {
        fs::write(public.join(file), [INSIDE, b" ", file.as_bytes()].concat()).unwrap();
    }
    fs::write(public.join("a/large"), [INSIDE, &vec![b'x'; 100_000]].concat()).unwrap();
    for file in [".env", "a/.hidden/f", ".git/f"] {
        fs::write(public.join(file), "hidden").unwrap();
    }
    for file in ["f", "b/f", "b/c/f"] {
        fs::write(outside.join(file), "outside").unwrap();
    }
    for (link, target) in [
        ("in", "a/f"),
        ("a/up", "../f"),
        ("a/in_b", "b"),
        ("out", "../outside/f"),
        ("out_dir", "../outside"),
        ("a/out_dir", "../../outside"),
        ("a/b/up_twice", "../../../outside"),
        ("dots", ".."),
        ("a/dots", "../.."),
        ("root", "/"),
        ("etc", "/etc"),
        ("proc", "/proc/self/root"),
        ("cwd", "/proc/self/cwd"),
        ("fd", "/proc/self/fd"),
        ("loop", "loop"),
        ("ping", "pong"),
        ("pong", "ping"),
        ("dangling", "nothing"),
        ("zero", "/dev/zero"),
    ] {
        symlink(target, public.join(link)).unwrap();
    }
    symlink(&outside, public.join("absolute")).unwrap();
    // The target is in the tree, but the link has an absolute path.
    symlink(public.join("f"), public.join("absolute_in")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        public.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    fs::write(public.join(std::ffi::OsStr::from_bytes(b"a/\xff\xfe")), INSIDE).unwrap();
    (root, public)
}

fn responder(public: &Path, options: &StaticOptions) -> FileResponder {
    let files = StaticFiles::open([("/s", public)].into_iter(), options).unwrap();
    FileResponder::new(Arc::new(files))
}

fn head<'a>(method: &'a [u8], path: &'a [u8]) -> RequestHead<'a> {
    RequestHead {
        stream: None,
        method,
        target: Target { raw: path, form: Form::Origin, authority: b"", path, query: None },
        version: Version::Http11,
        block: b"\r\n",
        fields: &[],
        body: BodyLength::None,
        changed: None,
        retained: false,
        kept: 0,
        client: None,
        is_cgi: false,
        is_websocket: false,
        is_https: None,
        takes_errors: false,
    }
}

/// Returns the status of the response; and its body, if that is the content of a file.
fn content(answer: &Answer) -> (u16, Option<Vec<u8>>) {
    let Body::Whole(source) = &answer.body else { return (answer.draft().status(), None) };
    let bytes = match source.bytes() {
        Ok(bytes) => bytes.to_vec(),
        Err((file, length)) => {
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        }
    };
    (answer.draft().status(), Some(bytes))
}

fn get(responder: &mut FileResponder, path: &str, now: u64) -> (u16, Option<Vec<u8>>) {
    content(&responder.answer(&head(b"GET", path.as_bytes()), now, LATER).expect("the path is the responder's"))
}

/// The number of [`SEGMENTS`], from the first on, that are names in the tree. Half of the chosen segments are from
/// these.
const TREE: usize = 7;

/// Path segments that lead to a file, or might lead out of the tree.
const SEGMENTS: &[&str] = &[
    "a",
    "b",
    "c",
    "f",
    "in",
    "up",
    "in_b",
    "out",
    "out_dir",
    "up_twice",
    "dots",
    "root",
    "etc",
    "passwd",
    "proc",
    "cwd",
    "fd",
    "0",
    "loop",
    "ping",
    "dangling",
    "zero",
    "absolute",
    "absolute_in",
    "fifo",
    "large",
    "..",
    ".",
    "",
    "...",
    "%2e",
    "%2e%2e",
    ".%2e",
    "%2E.",
    "%252e%252e",
    "..%2f",
    "..%5c",
    "..\\",
    "%2f",
    "%2f..",
    "%5c",
    "\\",
    "%00",
    "f%00",
    "%0a",
    "%ff%fe",
    "x%20y",
    "x y",
    "%c3%a9",
    ".well-known",
    ".git",
    ".env",
    ".hidden",
    "swap",
    "outside",
    "public",
    "%",
    "%2",
    "%zz",
    "%u002e",
    "..;",
    "..f",
    "f..",
    "-",
    "~",
    "%c0%ae%c0%ae",
    "%e0%80%ae",
    "//",
    "s",
];

fn random_path(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut path = b"/s".to_vec();
    for _ in 0..random.usize(1..6) {
        path.extend_from_slice(b"/");
        if random.u8(..12) == 0 {
            path.extend((0..random.usize(..6)).map(|_| random.u8(..)));
        } else {
            let known = if random.bool() { TREE } else { SEGMENTS.len() };
            path.extend_from_slice(SEGMENTS[random.usize(..known)].as_bytes());
        }
    }
    if random.u8(..8) == 0 {
        let at = random.usize(..path.len());
        path[at] = random.u8(..);
    }
    if random.u8(..16) == 0 {
        path.push(b'/');
    }
    path
}

/// Tries `KIRSCH_STATIC_PATHS` random paths (an environment variable, 10^5 by default), from the seed `KIRSCH_SEED`.
/// Meanwhile a thread keeps exchanging a directory of the tree and a link that leads out.
#[test]
fn no_path_leads_out_of_the_tree() {
    let number =
        |name: &str, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let paths: u64 = number("KIRSCH_STATIC_PATHS", 100_000);
    let seed: u64 = number("KIRSCH_SEED", fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let (root, public) = tree();
    let by_component = Directory::by_component(&public).unwrap();
    let mut followed = responder(&public, &StaticOptions { index: "f".into(), ..StaticOptions::default() });
    let stopped = AtomicBool::new(false);
    let (mut found, mut not_found, mut steps) = (0u64, 0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (place, aside, link) = (public.join("swap"), root.path().join("aside"), root.path().join("link"));
            symlink(root.path().join("outside"), &link).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                for (from, to) in [(&place, &aside), (&link, &place), (&place, &link), (&aside, &place)] {
                    fs::rename(from, to).unwrap();
                }
            }
        });
        for count in 0..paths {
            let path = random_path(&mut random);
            let shown = path.escape_ascii();
            if let Some(answer) = followed.answer(&head(b"GET", &path), count / 100, LATER) {
                match content(&answer) {
                    (200, Some(bytes)) => {
                        found += 1;
                        assert!(bytes.starts_with(INSIDE), "seed {seed}: {shown} is {}", bytes.escape_ascii());
                    }
                    (200, None) => panic!("seed {seed}: {shown}"),
                    (status, _) => {
                        not_found += 1;
                        assert!(
                            matches!(status, 301 | 404),
                            "seed {seed}: {shown} gets {status}: {:?}",
                            followed.take_failure()
                        );
                    }
                }
            }
            // Check the directory itself, without the rules for names.
            let name = path.strip_prefix(b"/s/").unwrap_or_default();
            if !name.split(|&b| b == b'/').any(|segment| matches!(segment, b"" | b"." | b"..")) && !name.contains(&0) {
                match by_component.file(name) {
                    Ok((mut file, _)) => {
                        steps += 1;
                        let mut bytes = Vec::new();
                        file.read_to_end(&mut bytes).unwrap();
                        let is_hidden = bytes == b"hidden";
                        assert!(
                            bytes.starts_with(INSIDE) || is_hidden,
                            "seed {seed}: {shown} is {}",
                            bytes.escape_ascii()
                        );
                    }
                    Err(Unavailable::Missing | Unavailable::Directory) => {}
                    Err(error) => panic!("seed {seed}: {shown}: {error:?}"),
                }
            }
        }
        stopped.store(true, Ordering::Relaxed);
    });
    println!("seed {seed}: {paths} paths, {found} files, {not_found} without one, {steps} found by component");
    assert!(
        found > paths / 100 && not_found > paths / 10 && steps > paths / 100,
        "seed {seed}: {found} {not_found} {steps}"
    );
}

#[test]
fn links_inside_are_followed_and_others_only_where_that_is_wanted() {
    let (_root, public) = tree();
    let mut inside = responder(&public, &StaticOptions::default());
    let anywhere = StaticOptions { follows_symlinks: true, ..StaticOptions::default() };
    let mut anywhere = responder(&public, &anywhere);
    for path in ["/s/in", "/s/a/up", "/s/a/in_b/f"] {
        assert_eq!(get(&mut inside, path, 0).0, 200, "{path}");
    }
    for path in ["/s/out", "/s/out_dir/f", "/s/absolute/f", "/s/absolute_in", "/s/dots/outside/f"] {
        assert_eq!(get(&mut inside, path, 0).0, 404, "{path}");
        assert_eq!(get(&mut anywhere, path, 0).0, 200, "{path}");
    }
    for path in ["/s/loop", "/s/ping", "/s/dangling", "/s/fifo", "/s/zero", "/s/.env", "/s/a", "/s/.git/f"] {
        assert_eq!(get(&mut inside, path, 0).0, 404, "{path}");
        assert_eq!(get(&mut anywhere, path, 0).0, 404, "{path}");
    }
}

#[test]
fn what_is_kept_is_compared_with_the_file_after_a_second() {
    let (_root, public) = tree();
    let mut responder = responder(&public, &StaticOptions::default());
    fs::write(public.join("f"), "inside 1").unwrap();
    assert_eq!(get(&mut responder, "/s/f", 0), (200, Some(b"inside 1".to_vec())));
    fs::write(public.join("f"), "inside 2").unwrap();
    assert_eq!(get(&mut responder, "/s/f", 999), (200, Some(b"inside 1".to_vec())));
    assert_eq!(get(&mut responder, "/s/f", 1000), (200, Some(b"inside 2".to_vec())));
    fs::remove_file(public.join("f")).unwrap();
    assert_eq!(get(&mut responder, "/s/f", 1999).0, 200);
    assert_eq!(get(&mut responder, "/s/f", 2000).0, 404);
    fs::write(public.join("f"), "inside 3").unwrap();
    assert_eq!(get(&mut responder, "/s/f", 2001), (200, Some(b"inside 3".to_vec())));
}

#[test]
fn a_file_that_has_just_changed_or_is_large_is_compared_at_each_request() {
    let (_root, public) = tree();
    let mut responder = responder(&public, &StaticOptions::default());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut get = |path: &[u8], wall: u64| content(&responder.answer(&head(b"GET", path), 0, wall).unwrap()).1.unwrap();
    assert_eq!(get(b"/s/a/f", now), b"inside a/f");
    fs::write(public.join("a/f"), "inside, and longer").unwrap();
    assert_eq!(get(b"/s/a/f", now), b"inside, and longer");
    assert_eq!(get(b"/s/a/large", LATER).len(), 100_006);
    fs::write(public.join("a/large"), vec![b'y'; 90_000]).unwrap();
    assert_eq!(get(b"/s/a/large", LATER).len(), 90_000);
}

#[test]
fn an_entity_tag_changes_with_the_file_although_its_time_is_set_back() {
    let (_root, public) = tree();
    let directory = Directory::open(&public, false).unwrap();
    let tag = || directory.file(b"f").unwrap().1.etag("");
    let first = tag();
    assert_eq!(first, tag());
    let modified = fs::metadata(public.join("f")).unwrap().modified().unwrap();
    fs::write(public.join("new"), "INSIDE f").unwrap();
    fs::File::options().write(true).open(public.join("new")).unwrap().set_modified(modified).unwrap();
    fs::rename(public.join("new"), public.join("f")).unwrap();
    assert_ne!(first, tag());
    assert_ne!(tag(), directory.file(b"f").unwrap().1.etag("gzip"));
}

#[test]
fn an_encoded_file_that_is_older_is_not_used() {
    let (_root, public) = tree();
    let directory = Directory::open(&public, false).unwrap();
    let set = |name: &str, time| {
        let file = fs::File::options().write(true).create(true).truncate(false).open(public.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + time).unwrap();
    };
    let stamp = |name: &[u8]| directory.file(name).unwrap().1;
    let nanos = std::time::Duration::from_nanos;
    set("f", nanos(5_300_000_000));
    for (time, expected) in [
        (nanos(5_300_000_000), true),
        (nanos(9_000_000_000), true),
        (nanos(5_299_999_999), false),
        // A file of a tool that copies whole seconds.
        (nanos(5_000_000_000), true),
        (nanos(4_000_000_000), false),
    ] {
        set("f.gz", time);
        assert_eq!(stamp(b"f.gz").is_newer_than(stamp(b"f").modified), expected, "{time:?}");
    }
}
