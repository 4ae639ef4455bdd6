"""Parsers for the texts of settings: durations, sizes, addresses, lists. Each raises ValueError. The message continues
after the text, as in ``'soon' is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms``.
"""

from __future__ import annotations

from kirsch.config.driver_names import canonical_name
from kirsch.net.addresses import HTTP, parse_bind, refuse_repeated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from kirsch.config.mounts import Mount
    from kirsch.net.certificates import CertificateFiles


def parse_duration(text: str) -> float:
    """Parse seconds from ``90``, ``90s``, ``5m``, ``1h30m``, ``30d`` or ``500ms``. Raises ValueError."""
    plain = text.strip().removesuffix("s")
    if plain.isascii() and plain.isdigit():
        # The form of most defaults, without re, whose import would add 2 ms to each start.
        duration = float(plain)
    else:
        import re

        number = r"(\d+(?:\.\d+)?)"
        composed = rf"(?:{number}d)?(?:{number}h)?(?:{number}m)?(?:{number}(?:s|$))?(?:{number}ms)?"
        match = re.fullmatch(composed, text.strip(), re.ASCII)
        if not text.strip() or match is None:
            raise ValueError("is not a duration; write 90, 90s, 5m, 1h30m, 30d or 500ms")
        days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
        duration = days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    if duration > 366 * 86400:
        raise ValueError("is more than a year; 0 means no limit")
    return duration


# The units of sizes as powers of 1024: "", "b", "k", "kb", "kib", "m" and so on.
_POWERS = {"": 0, "b": 0} | {f"{letter}{end}": 1 + i for i, letter in enumerate("kmgt") for end in ("", "b", "ib")}


def parse_size(text: str) -> int:
    """Parse bytes from ``65536``, ``64k``, ``1MiB`` or ``1g``. Raises ValueError."""
    stripped = text.strip()
    unit = stripped.lstrip("0123456789.")
    number = stripped.removesuffix(unit)
    power = _POWERS.get(unit.strip().lower())
    if power is None or not all(part.isdigit() for part in number.split(".", 1)):
        raise ValueError("is not a size; write 65536, 64k, 1MiB or 1g")
    size = float(number) * 1024**power
    if size >= 2**53:
        raise ValueError("is larger than any request")
    if size != int(size):
        raise ValueError("is not a whole number of bytes")
    return int(size)


def parse_count(text: str) -> int:
    if text.strip().removeprefix("-").isdecimal() and text.strip().startswith("-"):
        raise ValueError("is below 0")
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text.strip()) > 15:
        raise ValueError("is not a whole number")
    return int(text)


def parse_switch(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("is neither yes nor no; write 1 or 0")


def parse_on_off(text: str) -> bool:
    """Parse the value of a switch that is on by default, and so takes a value. Raises ValueError."""
    try:
        if text.strip():
            return parse_switch(text)
    except ValueError:
        pass
    raise ValueError("is neither on nor off")


def parse_word(text: str, words: tuple[str, ...]) -> str:
    """Parse one of ``words``. Raises ValueError."""
    word = text.strip().lower()
    if word not in words:
        from kirsch.suggest import did_you_mean

        meant = _SAME_WORDS.get(word, "")
        hint = f"; did you mean {meant}?" if meant in words else did_you_mean(word, words)
        raise ValueError(f"is not one of {', '.join(words)}{hint}")
    return word


_SAME_WORDS = {"warn": "warning", "trace": "debug", "fatal": "critical", "asgi3": "asgi", "asginl": "asgi"}
"""Names of values in other servers and libraries, and our names for them."""


def parse_secret(text: str) -> str:
    """Parse the place of a secret. The error message omits the text, which may be the secret itself."""
    text = text.strip()
    kind, colon, place = text.partition(":")
    if text and (kind not in ("file", "env") or not colon or not place):
        from kirsch.net.certificates import PLACES_OF_PASSWORDS

        raise ValueError(f'"..." (not shown) is not the place of a password; {PLACES_OF_PASSWORDS}')
    return text


def parse_acme_names(text: str) -> tuple[str, ...]:
    """Parse host names and IP addresses. Raises ValueError for a name that an authority cannot verify by HTTP or
    TLS."""
    names: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        name = part.lower().rstrip(".")
        if name.startswith("*."):
            raise ValueError(
                f"{part!r} needs a change in the domain name system (DNS-01), which Kirsch does not make; name the "
                "hosts, or let certbot or lego obtain it, and give --certfile"
            )
        if "://" in part or "/" in part:
            raise ValueError(f"{part!r} is a URL; write the host name alone, as in example.org")
        if address := _ip_address(name.strip("[]")):
            names.append(address)
            continue
        if not name.isascii():
            raise ValueError(f"{part!r} is not ASCII; write {name.encode('idna').decode()!r}")
        if not all(map(_is_label, name.split("."))):
            hint = "; ports belong to --bind" if ":" in part else ""
            raise ValueError(f"{part!r} is not a host name or an IP address{hint}")
        if "." not in name:
            raise ValueError(f"{part!r} is no name of the internet; for a name of this machine: kirsch dev-cert {part}")
        names.append(name)
    return tuple(dict.fromkeys(names))


def _ip_address(text: str) -> str:
    """Return the canonical form of an IP address; empty if ``text`` is none."""
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, text))
        except (OSError, ValueError):
            pass
    return ""


def _is_label(label: str) -> bool:
    return 0 < len(label) < 64 and label.replace("-", "a").isalnum() and label[0] != "-" != label[-1]


def parse_contacts(text: str) -> tuple[str, ...]:
    found = tuple(part.removeprefix("mailto:") for part in filter(None, map(str.strip, text.split(","))))
    for address in found:
        name, at, host = address.rpartition("@")
        if not (name and at and host) or any(character.isspace() for character in address):
            raise ValueError(f"{address!r} is not a mail address; write it as in admin@example.org")
    return found


def parse_acme_directory(text: str) -> str:
    """Parse the URL of an ACME directory. It must be https: otherwise an attacker on the network could pose as the
    authority."""
    url = text.strip()
    if not url.startswith("https://") or not url[8:].partition("/")[0]:
        raise ValueError("is not the URL of an authority; write it as in https://acme.example/directory")
    return url


def parse_tls_version(text: str) -> str:
    """Parse ``1.2`` or ``1.3``, also with the prefix TLS of other servers. Raises ValueError."""
    number = text.strip().lower().removeprefix("tls").removeprefix("v").replace("_", ".")
    if number in ("1", "1.0", "1.1"):
        raise ValueError("is broken, and is not spoken; write 1.2 or 1.3")
    return parse_word(number, ("1.2", "1.3"))


def parse_http_versions(text: str) -> str:
    """Parse ``auto``, ``1`` or ``2``. Raises ValueError."""
    word = text.strip().lower()
    if word in ("h11", "httptools"):
        raise ValueError("is a parser of uvicorn; write auto, or leave --http out")
    if ":" in word:
        raise ValueError("is an address, which --http of uWSGI takes; write --bind HOST:PORT")
    return parse_word({"1.1": "1", "2.0": "2"}.get(word, word), ("auto", "1", "2"))


def parse_ciphers(text: str) -> str:
    if any(not " " <= character <= "~" for character in text):
        raise ValueError("names no cipher suites; write names with colons between them")
    return text.strip()


def parse_client_certificates(text: str) -> str:
    """Parse none, optional or required, or the number of CERT_NONE, CERT_OPTIONAL or CERT_REQUIRED in Python's
    ``ssl``."""
    word = text.strip().lower().removeprefix("cert_")
    numbers = {"0": "none", "1": "optional", "2": "required"}
    return parse_word(numbers.get(word, word), ("none", "optional", "required"))


_CERTIFICATE_KEYS = ("certfile", "keyfile", "keyfile-password", "names")


def parse_certificates(text: str) -> tuple[CertificateFiles, ...]:
    """Parse ``CERTFILE,KEYFILE``, or a table as JSON; NUL separates several. Raises ValueError."""
    found: list[CertificateFiles] = []
    for part in filter(None, map(str.strip, text.split("\0"))):
        if part.startswith("{"):
            import json

            found += program_certificates([json.loads(part)])
            continue
        paths = [path.strip() for path in part.split(",")]
        if len(paths) > 2 or not all(paths):
            raise ValueError(f"{part!r} is not a certificate; write CERTFILE,KEYFILE")
        found += program_certificates([dict(zip(_CERTIFICATE_KEYS, paths, strict=False))])
    return tuple(found)


def program_certificates(given: Any) -> tuple[CertificateFiles, ...]:
    """Convert tables of certificates to CertificateFiles. Raises ValueError and TypeError."""
    if isinstance(given, str):
        return parse_certificates(given)
    if not given:
        return ()
    from kirsch.net.certificates import CertificateFiles

    found: list[CertificateFiles] = []
    for table in given:
        if isinstance(table, CertificateFiles):
            found.append(table)
            continue
        if not isinstance(table, dict):
            raise TypeError(f"tables with {', '.join(_CERTIFICATE_KEYS)} are wanted, and there is {table!r}")
        table = {name.replace("_", "-"): value for name, value in table.items()}
        for name in table:
            if name not in _CERTIFICATE_KEYS:
                from kirsch.suggest import did_you_mean

                hint = did_you_mean(name, _CERTIFICATE_KEYS) or f"; it has {', '.join(_CERTIFICATE_KEYS)}"
                raise ValueError(f"'[[tls]]' has no {name}{hint}")
        names = table.get("names", ())
        names = (names,) if isinstance(names, str) else tuple(names)
        texts = [table.get(name, "") for name in _CERTIFICATE_KEYS[:3]]
        if not all(isinstance(text, str) for text in (*texts, *names)):
            raise TypeError("'[[tls]]' has paths and names in quotes")
        if not texts[0]:
            raise ValueError("'[[tls]]' needs a certfile, the path of a certificate")
        found.append(CertificateFiles(texts[0], texts[1], parse_secret(texts[2]), names))
    return tuple(found)


def shown_certificates(text: str) -> str:
    return ", ".join(each.certfile for each in parse_certificates(text))


def parse_driver(text: str) -> str:
    return canonical_name(text.strip())


def parse_path_limits(text: str) -> tuple[tuple[str, float], ...]:
    """Parse ``/reports=300s,/upload=0`` into (prefix, seconds). Raises ValueError."""
    limits = []
    for part in filter(None, map(str.strip, text.split(","))):
        prefix, equals, duration = part.rpartition("=")
        if not equals:
            raise ValueError(f"{part!r} lacks a duration; write {part}=300s")
        try:
            limits.append((prefix.strip(), parse_duration(duration)))
        except ValueError as error:
            raise ValueError(f"{part!r}: {duration!r} {error}") from None
    return path_limits(limits)


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parse ``/shop=shop:app``, ``example.org=site:app`` or ``example.org/shop=shop:app``; NUL separates several.

    Raises ValueError.
    """
    if not text.strip("\0 "):
        return ()
    from kirsch.config import mounts

    found: dict[tuple[str, str], Mount] = {}
    for part in filter(None, text.split("\0")):
        place, app = _place_and_rest(part, "application", "module:app")
        mount = mounts.parse_mount(place, app)
        if (mount.host, mount.path) in found:
            raise ValueError(f"{part!r}: there is an application at {mount.place} already; choose another path")
        found[mount.host, mount.path] = mount
    return tuple(found.values())


def parse_static(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``/static=./public`` into (path, directory); NUL separates several. Raises ValueError."""
    parts = filter(None, text.split("\0"))
    return static_directories([_place_and_rest(part, "directory", "DIRECTORY") for part in parts])


def _place_and_rest(text: str, rest_is: str, example: str) -> tuple[str, str]:
    """Split ``PATH=APPLICATION`` or ``PATH=DIRECTORY``. Raises ValueError if a half is missing or the order is
    wrong. ``rest_is`` names the second half for messages, ``example`` is an example of it."""
    place, equals, rest = (part.strip() for part in text.partition("="))
    if place and rest:
        if rest.startswith("/") and (":" in place if rest_is == "application" else place.startswith(".")):
            raise ValueError(f"{text!r} has the path last; did you mean {rest}={place}?")
        return place, rest
    if equals and not place and not rest:
        raise ValueError(f"{text!r} has neither a path nor a value; write /path={example}")
    if rest or (not equals and not place.startswith("/") and (":" in place or rest_is == "directory")):
        raise ValueError(f"{text!r} names no path; write /path={rest or place}")
    path = place if place.startswith("/") or _is_host(place) else f"/{place}"
    raise ValueError(f"{text!r} names no {rest_is}; write {path}={example}")


def _is_host(place: str) -> bool:
    from kirsch.config.mounts import is_host

    return is_host(place)


def static_directories(given: Any) -> tuple[tuple[str, str], ...]:
    """Convert a program's value to (path, directory) pairs; a path has no slash at its end. Raises ValueError and
    TypeError."""
    if isinstance(given, str):
        return parse_static(given)
    found: dict[str, str] = {}
    for pair in given.items() if hasattr(given, "items") else given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise TypeError(f"pairs of a path and a directory are wanted, both str, and there is {pair!r}")
        from kirsch.config.mounts import check_path

        if pair[0].startswith(".") and pair[1].startswith("/"):
            raise ValueError(f"{pair[0]!r} is a directory, and the path is written first: {pair[1]}={pair[0]}")
        try:
            path = pair[0] and check_path(pair[0])  # empty means the root, as in this function's results
        except ValueError as error:
            raise ValueError(f"{pair[0]!r} {error}") from None
        if "\0" in pair[1] or not pair[1]:
            raise ValueError(f"{pair[0]!r} has {pair[1]!r}, which is no directory")
        if path in found:
            raise ValueError(f"{pair[0]!r} has a directory already, {found[path]!r}; choose another path")
        found[path] = pair[1]
    return tuple(found.items())


def parse_patterns(text: str) -> tuple[str, ...]:
    return program_patterns(part.strip() for part in text.split(",") if part.strip())


def program_patterns(given: Any) -> tuple[str, ...]:
    """Convert a program's value to patterns of relative file names. Raises ValueError and TypeError."""
    if isinstance(given, str):
        return parse_patterns(given)
    patterns = tuple(given)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"patterns must be str, and one is {pattern!r}")
        if pattern.startswith("/"):
            raise ValueError(f"{pattern!r} begins with a slash; names are relative to the directory")
        if pattern.replace("**", "*").count("*") > _STARS_MAX:
            raise ValueError(f"{pattern!r} has more than {_STARS_MAX} stars")
    return patterns


# The limit of stars: each star of a pattern multiplies the cost of a comparison.
_STARS_MAX = 3


_CODINGS = ("zstd", "br", "gzip")


def parse_codings(text: str) -> tuple[str, ...]:
    """Parse content codings in order of preference, or on or off. Raises ValueError."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words or words == ["off"] or words == ["on"]:
        return _CODINGS if words == ["on"] else ()
    for word in words:
        if word not in _CODINGS:
            raise ValueError(f"{word!r} is none of on, off, {', '.join(_CODINGS)}")
    return tuple(dict.fromkeys(words))


def program_codings(given: Any) -> tuple[str, ...]:
    """Convert a program's value to content codings. Raises ValueError and TypeError."""
    if isinstance(given, bool):
        return _CODINGS if given else ()
    return parse_codings(given if isinstance(given, str) else ",".join(given))


def parse_media_types(text: str) -> tuple[str, ...]:
    return program_media_types(part.strip() for part in text.split(",") if part.strip())


def program_media_types(given: Any) -> tuple[str, ...]:
    """Convert a program's value to patterns of media types, in lower case. Raises ValueError."""
    if isinstance(given, str):
        return parse_media_types(given)
    patterns = tuple(pattern.lower() for pattern in given)
    for pattern in patterns:
        # The star may only be at one end. Checked without re, whose import would add 2 ms to each start.
        inner = pattern.removesuffix("*") if pattern.endswith("*") else pattern.removeprefix("*")
        is_plain = inner.isascii() and all(character.isalnum() or character in "/.+-_" for character in inner)
        if not is_plain or inner.count("/") > 1 or not ("*" in pattern or "/" in inner):
            raise ValueError(f"{pattern!r} is no media type such as text/html, text/* or *+json")
    return patterns


def parse_file_name(text: str) -> str:
    if "/" in text or "\0" in text or text.startswith("."):
        raise ValueError("is not the name of a file in each directory; write index.html")
    return text


def parse_binds(text: str) -> tuple[str, ...]:
    binds = tuple(part.strip() for part in text.split(",") if part.strip())
    if not binds:
        raise ValueError("names no address; write 127.0.0.1:8000 or unix:/run/app.sock")
    refuse_repeated(map(parse_bind, binds))
    return binds


def parse_optional_binds(text: str) -> tuple[str, ...]:
    """Parse addresses on which the server itself responds, only with unencrypted HTTP. Raises ValueError."""
    binds = parse_binds(text) if text.strip() else ()
    for bind in binds:
        protocol = parse_bind(bind).protocol
        if protocol != HTTP:
            raise ValueError(f"{bind!r}: HTTP is spoken here; did you mean {bind.removeprefix(protocol + ':')!r}?")
        if parse_bind(bind).encrypts:
            raise ValueError(f"{bind!r}: nothing is encrypted here; did you mean http{bind[5:]}?")
    return binds


def parse_script_name(text: str) -> str:
    """Parse the decoded path below which a web server serves the application, ``/`` for the root, or ``auto``."""
    text = text.strip()
    if text in ("auto", "/"):
        return text
    from kirsch.config.mounts import check_path

    return check_path(text)


def parse_addresses(text: str) -> str:
    """Parse addresses of proxies: ``10.0.0.0/8,192.0.2.1,unix`` or ``all``. Raises ValueError."""
    text = ",".join(filter(None, map(str.strip, text.split(","))))
    if not text:
        return ""
    if text == "*":
        return "all"  # the form of gunicorn
    # The engine parses the addresses. It is imported here, so that reading other settings does not load it.
    from kirsch import _native

    _native.check_addresses(text)
    return text


def parse_paths(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def program_paths(given: Any) -> tuple[str, ...]:
    """Convert a program's value to paths. Raises TypeError."""
    paths = parse_paths(given) if isinstance(given, str) else tuple(given)
    if not all(isinstance(path, str) for path in paths):
        raise TypeError(f"paths must be str, and they are {given!r}")
    return paths


def parse_path(text: str) -> str:
    if "\0" in text:
        raise ValueError("is not a path")
    return text


def parse_function(text: str) -> str:
    """Parse ``module:function``; empty means none. Raises ValueError."""
    text = text.strip()
    module, _, function = text.partition(":")
    if text and not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise ValueError("is not a function; write module:function, as in shop.hooks:connect")
    return text


def parse_log_config(text: str) -> str:
    """Parse a path, or a table for ``logging.config.dictConfig`` as JSON. Raises ValueError."""
    if text.startswith("{"):
        import json

        try:
            json.loads(text)
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from None
        return text
    return parse_path(text)


def parse_url_path(text: str) -> str:
    """Parse the path of a request in the form that the engine compares, without a query; empty means none."""
    text = text.strip()
    if text and not text.startswith("/"):
        raise ValueError(f"is not a path; did you mean /{text}?")
    if any(not "!" <= character <= "~" or character in "?#" for character in text):
        raise ValueError("is not what requests contain; write a path, percent-encoded, without ? and #")
    return text


def parse_name(text: str) -> str:
    if any(not character.isprintable() for character in text):
        raise ValueError("is not a name; write visible characters")
    return text.strip()


def parse_account(text: str) -> str:
    """Parse a user or a group, by name or number. Its existence is checked later, when it is used."""
    if any(character.isspace() or not character.isprintable() or character == ":" for character in text.strip()):
        raise ValueError("is not a name or a number")
    return text.strip()


def parse_umask(text: str) -> int | None:
    """Parse octal digits, as for ``umask`` in the shell; empty means none. Raises ValueError."""
    digits = text.strip().lower().removeprefix("0o")
    if not text.strip():
        return None
    if not 1 <= len(digits) <= 4 or digits.strip("01234567") or int(digits, 8) > 0o777:
        raise ValueError("is not a umask; write octal digits such as 027")
    return int(digits, 8)


def parse_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``NAME=VALUE`` into pairs. NUL separates several; the last value of a name is used. Raises ValueError."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split("\0")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{part!r} is not a variable; write NAME=VALUE")
        pairs[name.strip()] = value
    return tuple(pairs.items())


def parse_pid_file(text: str) -> str:
    if text.isdigit():
        raise ValueError(f"is a number, but -p names the pid file; did you mean --bind :{text}?")
    return parse_path(text)


def parse_field_value(text: str) -> str:
    """Parse the value of a header field (RFC 9110 section 5.5): visible ASCII and single spaces; empty means none."""
    if any(not " " <= character <= "~" for character in text) or text != text.strip():
        raise ValueError("cannot be a header's value; write visible ASCII")
    return text


def parse_log_format(text: str) -> str:
    if not text.strip() or any(character in text for character in "\r\n\0"):
        raise ValueError("is not a format; write combined, json, or atoms such as '%(h)s %(r)s %(s)s'")
    if "%" not in text:
        return parse_word(text, ("combined", "json"))
    # The engine checks the atoms. It is imported here, so that reading other settings does not load it.
    from kirsch import _native

    _native.check_access_log_format(text)
    return text


def path_limits(given: Mapping[str, float] | Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return (prefix, seconds) pairs for the engine: without a final slash except in ``/`` itself, and without
    duplicates.

    Raises ValueError or TypeError for other values.
    """
    limits: dict[str, float] = {}
    pairs: Any = given.items() if hasattr(given, "items") else given
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"pairs of a prefix and seconds are wanted, and there is {pair!r}")
        prefix, seconds = pair
        if not isinstance(prefix, str) or isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"a prefix and its seconds must be str and float, and are {prefix!r} and {seconds!r}")
        if not prefix.startswith("/"):
            raise ValueError(f"{prefix!r} is not the beginning of a path; did you mean {'/' + prefix!r}?")
        if any(character in prefix for character in "?#"):
            raise ValueError(f"{prefix!r} is more than a path; omit what follows ? and #")
        if not all("!" <= character <= "~" for character in prefix):
            raise ValueError(f"{prefix!r} is not what requests contain; write it percent-encoded")
        if not seconds >= 0:
            raise ValueError(f"{prefix!r} has {seconds!r} seconds, which must not be negative")
        name = prefix.rstrip("/") or "/"
        if name in limits:
            raise ValueError(f"{prefix!r} is there twice; which of the two is meant?")
        limits[name] = float(seconds)
    return tuple(limits.items())


def program_path_limits(given: Any) -> tuple[tuple[str, float], ...]:
    """Do the same as :func:`path_limits` for a program's value, in which a duration may be text."""
    pairs = given.items() if hasattr(given, "items") else given
    return path_limits((pair[0], _seconds(*pair)) if _is_pair_with_text(pair) else pair for pair in pairs)


def _is_pair_with_text(pair: object) -> bool:
    return isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[1], str)


def _seconds(prefix: object, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{prefix}: {text!r} {error}") from None
