//! Splits the path of a request into `SCRIPT_NAME` and `PATH_INFO`.

use crate::text::percent_decoded;
use wire::message::RequestHead;

/// The rule by which the path of a request is split into `SCRIPT_NAME` and `PATH_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptName {
    /// Use the web server's split, if it sends a `PATH_INFO` that is not empty. Most servers send the whole path as
    /// `SCRIPT_NAME` unless they are configured otherwise; then `SCRIPT_NAME` is empty.
    FromServer,
    /// Use this `SCRIPT_NAME`, which has no trailing slash; empty for the root.
    At(Vec<u8>),
}

impl ScriptName {
    /// Parses the setting: `auto`, or a path.
    pub(crate) fn parse(text: &str) -> Self {
        if text == "auto" { Self::FromServer } else { Self::At(text.trim_end_matches('/').as_bytes().to_vec()) }
    }

    /// Returns `SCRIPT_NAME` and `PATH_INFO` of a request for which the web server sent these variables.
    pub(super) fn split(&self, variables: &PathVariables<'_>) -> (Vec<u8>, Vec<u8>) {
        // lighttpd sends "/" for the root.
        let script_name = variables.script_name.strip_suffix(b"/").unwrap_or(variables.script_name);
        let path_info = match variables.path_info {
            [] => Vec::new(),
            [b'/', ..] => variables.path_info.to_vec(),
            _ => [b"/", variables.path_info].concat(),
        };
        // With `uwsgi_param SCRIPT_NAME /app` and nginx's default `PATH_INFO $document_uri`, PATH_INFO is the whole
        // path, and begins with SCRIPT_NAME. RFC 3875 section 4.1.5 requires only the rest.
        let requested = percent_decoded(variables.target_path);
        let rest = path_info.strip_prefix(script_name).filter(|rest| matches!(rest, [] | [b'/', ..]));
        let path_info = match rest {
            Some(rest) if !script_name.is_empty() && path_info == requested => rest.to_vec(),
            _ => path_info,
        };
        match self {
            Self::FromServer if !variables.path_info.is_empty() => return (script_name.to_vec(), path_info),
            // The web server has mapped the request to a script, such as `/shop/index.fcgi`, that is not in the
            // client's path.
            Self::At(mount) if !path_info.is_empty() && *requested == [&mount[..], &path_info].concat() => {
                return (mount.clone(), path_info);
            }
            _ => {}
        }
        // The whole path. Without a PATH_INFO, a trailing slash of SCRIPT_NAME belongs to the path.
        let whole = match (variables.script_name, variables.document_uri) {
            _ if !variables.path_info.is_empty() => [script_name, &path_info].concat(),
            ([], []) => requested,
            ([], document_uri) => document_uri.to_vec(),
            (script_name, _) => script_name.to_vec(),
        };
        match self {
            Self::FromServer => (Vec::new(), whole),
            Self::At(mount) => match whole.strip_prefix(&mount[..]) {
                Some(rest) if rest.is_empty() || rest[0] == b'/' => (mount.clone(), rest.to_vec()),
                // The web server has removed the prefix itself.
                _ => (mount.clone(), whole),
            },
        }
    }
}

/// The variables of a web server for the path. All are percent-decoded except the path of the target.
pub(super) struct PathVariables<'a> {
    pub(super) script_name: &'a [u8],
    pub(super) path_info: &'a [u8],
    pub(super) document_uri: &'a [u8],
    /// True if there is a `REQUEST_URI` that is not empty.
    pub(super) has_uri: bool,
    pub(super) target_path: &'a [u8],
}

impl<'a> PathVariables<'a> {
    pub(super) fn of(head: &RequestHead<'a>) -> Self {
        let mut variables = Self::new(head.target.path);
        head.fields.iter().for_each(|field| variables.note(field.name(head.block), field.value(head.block)));
        variables
    }

    pub(super) fn new(target_path: &'a [u8]) -> Self {
        Self { script_name: b"", path_info: b"", document_uri: b"", has_uri: false, target_path }
    }

    /// Stores the variable if it concerns the path.
    pub(super) fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"SCRIPT_NAME" => self.script_name = value,
            b"PATH_INFO" => self.path_info = value,
            b"DOCUMENT_URI" => self.document_uri = value,
            b"REQUEST_URI" => self.has_uri = !value.is_empty(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case has the variables of a web server (`tests/test_fronts.py`), and the expected results.
    #[test]
    fn script_name_and_path_are_those_of_the_web_server() {
        // SCRIPT_NAME, PATH_INFO, DOCUMENT_URI, the target's path; expected SCRIPT_NAME and PATH_INFO with `auto`, and
        // with /app.
        let cases = [
            ("/app/a b", "", "/app/a b", "/app/a%20b", ("", "/app/a b"), ("/app", "/a b")),
            ("/app", "/x", "", "/app/x", ("/app", "/x"), ("/app", "/x")),
            ("/app", "", "", "/app", ("", "/app"), ("/app", "")),
            ("/app/", "", "", "/app/", ("", "/app/"), ("/app", "/")),
            ("/", "x/y", "", "/x/y", ("", "/x/y"), ("/app", "/x/y")),
            ("/", "/x/y", "", "/x/y", ("", "/x/y"), ("/app", "/x/y")),
            ("", "/app/x", "/app/x", "/app/x", ("", "/app/x"), ("/app", "/x")),
            ("", "", "/app/x", "/app/%78", ("", "/app/x"), ("/app", "/x")),
            ("", "", "", "/a%2Fb", ("", "/a/b"), ("/app", "/a/b")),
            ("/apple", "", "", "/apple", ("", "/apple"), ("/app", "/apple")),
            ("/", "", "", "/", ("", "/"), ("/app", "/")),
            // PATH_INFO is the whole path; but not if the path contains the prefix twice.
            ("/app", "/app/x", "/app/x", "/app/%78", ("/app", "/x"), ("/app", "/x")),
            ("/app", "/app", "", "/app", ("/app", ""), ("/app", "")),
            ("/app", "/app/x", "", "/app/app/x", ("/app", "/app/x"), ("/app", "/app/x")),
            ("/app", "/apple", "", "/apple", ("/app", "/apple"), ("/app", "/apple")),
            // .htaccess maps the request to a script that is not in the client's path.
            ("/app/index.fcgi", "/x", "", "/app/x", ("/app/index.fcgi", "/x"), ("/app", "/x")),
        ];
        for (script_name, path_info, document_uri, target_path, auto, mounted) in cases {
            let variables = PathVariables {
                script_name: script_name.as_bytes(),
                path_info: path_info.as_bytes(),
                document_uri: document_uri.as_bytes(),
                ..PathVariables::new(target_path.as_bytes())
            };
            let bytes = |(name, path): (&str, &str)| (name.as_bytes().to_vec(), path.as_bytes().to_vec());
            assert_eq!(ScriptName::parse("auto").split(&variables), bytes(auto), "{script_name} {path_info}");
            assert_eq!(ScriptName::parse("/app/").split(&variables), bytes(mounted), "{script_name} {path_info}");
        }
    }
}
