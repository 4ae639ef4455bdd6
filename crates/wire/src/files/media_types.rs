//! Media types of files by extension. The table is part of the program, so that responses do not depend on the machine.

/// Extensions and their media types, sorted by extension. Text is UTF-8; JavaScript is `text/javascript` (RFC 9239).
static TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/octet-stream"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("svgz", "image/svg+xml; charset=utf-8"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", "video/mp2t"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "text/xml; charset=utf-8"),
    ("xsl", "text/xml; charset=utf-8"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The length of the longest extension in the table.
const LONGEST: usize = 11;

/// The media type of a file with an unknown extension.
const UNKNOWN: &str = "application/octet-stream";

/// Returns the media type of the file `name`, which may include directories. The extension is compared without regard
/// to case.
#[must_use]
pub fn media_type(name: &[u8]) -> &'static str {
    let Some(dot) = memchr::memrchr2(b'.', b'/', name).filter(|&at| name[at] == b'.') else { return UNKNOWN };
    let extension = &name[dot + 1..];
    let mut lower = [0; LONGEST];
    let Some(lower) = lower.get_mut(..extension.len()) else { return UNKNOWN };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(lower)).map_or(UNKNOWN, |at| TYPES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_no_extension_is_longer_than_it_says() {
        assert!(TYPES.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(TYPES.iter().map(|(extension, _)| extension.len()).max(), Some(LONGEST));
    }

    #[test]
    fn the_last_extension_decides_in_any_case() {
        assert_eq!(media_type(b"a/b.CSS"), "text/css; charset=utf-8");
        assert_eq!(media_type(b"jquery.min.js"), "text/javascript; charset=utf-8");
        assert_eq!(media_type(b"a.tar.gz"), "application/gzip");
        for name in [&b"a"[..], b"", b"a.", b"a.unknown", b"a.css/b", b"a.averylongextension", b"css"] {
            assert_eq!(media_type(name), UNKNOWN, "{name:?}");
        }
    }
}
