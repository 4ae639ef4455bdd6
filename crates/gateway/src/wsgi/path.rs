//! The path of a request: which part of it is `SCRIPT_NAME` and which `PATH_INFO`.

use crate::text::percent_decoded;
use wire::message::RequestHead;

/// The rule for the part of a request's path that is the application's `SCRIPT_NAME`; the rest is `PATH_INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptName {
    /// As the web server says, if it gives a `PATH_INFO` that is not empty. Most give the whole path as `SCRIPT_NAME`
    /// unless they are configured otherwise; then the application is at the root.
    FromServer,
    /// This one, without a slash at its end; empty for the root.
    At(Vec<u8>),
}

impl ScriptName {
    /// `auto`, or a path.
    pub(crate) fn parse(text: &str) -> Self {
        if text == "auto" { Self::FromServer } else { Self::At(text.trim_end_matches('/').as_bytes().to_vec()) }
    }

    /// `SCRIPT_NAME` and `PATH_INFO` of a request, whose web server gives these variables.
    pub(super) fn split(&self, variables: &PathVariables<'_>) -> (Vec<u8>, Vec<u8>) {
        // lighttpd says "/" for the root.
        let script_name = variables.script_name.strip_suffix(b"/").unwrap_or(variables.script_name);
        let path_info = match variables.path_info {
            [] => Vec::new(),
            [b'/', ..] => variables.path_info.to_vec(),
            _ => [b"/", variables.path_info].concat(),
        };
        // `uwsgi_param SCRIPT_NAME /app` beside nginx's own `PATH_INFO $document_uri`: the whole path is in PATH_INFO,
        // and its beginning in SCRIPT_NAME too. RFC 3875 section 4.1.5 wants the rest alone.
        let requested = percent_decoded(variables.target_path);
        let rest = path_info.strip_prefix(script_name).filter(|rest| matches!(rest, [] | [b'/', ..]));
        let path_info = match rest {
            Some(rest) if !script_name.is_empty() && path_info == requested => rest.to_vec(),
            _ => path_info,
        };
        match self {
            Self::FromServer if !variables.path_info.is_empty() => return (script_name.to_vec(), path_info),
            // The web server has led the request to a script, `/shop/index.fcgi`, which the client's path does not
            // name.
            Self::At(mount) if !path_info.is_empty() && *requested == [&mount[..], &path_info].concat() => {
                return (mount.clone(), path_info);
            }
            _ => {}
        }
        // The path as a whole: without a PATH_INFO, a slash at the end of SCRIPT_NAME is the path's own.
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
                // The web server has removed the prefix by itself.
                _ => (mount.clone(), whole),
            },
        }
    }
}

/// The parts of a request's path that a web server gives, decoded except for that of the target.
pub(super) struct PathVariables<'a> {
    pub(super) script_name: &'a [u8],
    pub(super) path_info: &'a [u8],
    pub(super) document_uri: &'a [u8],
    /// There is a `REQUEST_URI` that is not empty.
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

    /// Keeps a variable if it is one of these.
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

    /// Each case has the variables of a web server (`tests/test_fronts.py`), and the place of the application.
    #[test]
    fn script_name_and_path_are_those_of_the_web_server() {
        // SCRIPT_NAME, PATH_INFO, DOCUMENT_URI, the target's path; SCRIPT_NAME and PATH_INFO by themselves, and at
        // /app.
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
            // PATH_INFO is the whole path; but not where the path has that beginning twice.
            ("/app", "/app/x", "/app/x", "/app/%78", ("/app", "/x"), ("/app", "/x")),
            ("/app", "/app", "", "/app", ("/app", ""), ("/app", "")),
            ("/app", "/app/x", "", "/app/app/x", ("/app", "/app/x"), ("/app", "/app/x")),
            ("/app", "/apple", "", "/apple", ("/app", "/apple"), ("/app", "/apple")),
            // .htaccess leads to a script that the client's path does not name.
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
