"""``kirsch static compress``: write compressed copies of static files. The engine sends these copies to clients that
accept them (docs/static.md).
"""

from __future__ import annotations

import os
import stat

from kirsch import reports
from kirsch.bootstrap import EXIT_FAILED, StartupError, reason
from kirsch.commands.output import print_output, table
from kirsch.config.setting import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Encode = Callable[[bytes], bytes]

HELP = """\
usage: kirsch static compress [--fast] DIRECTORY...

Writes compressed copies beside the files of the directories: app.css.gz, and
app.css.br and app.css.zst where the modules for them can be imported. --static
sends them to clients that accept them, unless they are older than the file.
What is up to date is left alone, so the command can be repeated. Symbolic links
and names with a dot in front are left out, and so is what does not become
shorter.

  --fast
        Compress less, in a tenth of the time.

Exit status: 0, or 1 when a file could not be read or written."""

# The extensions of files that are not compressed by their format.
_EXTENSIONS = (
    "atom bmp cjs css csv eot geojson gltf htm html ico ics js json jsonld map md mjs otf rss rtf svg toml ttf txt vtt "
    "wasm webmanifest xhtml xml xsl yaml yml"
)

# A response with fewer bytes fits one packet, so that compression saves nothing.
_LEAST_BYTES = 500

# A copy must be at most this fraction of the original, to be worth decompressing.
_MOST_SHARE = 0.95


def main(argv: Sequence[str]) -> int:
    """Run the subcommand with the words after its name; return its exit status. Raises UsageError and StartupError."""
    words = [word for word in argv if word != "--fast"]
    if not argv or "-h" in argv or "--help" in argv:
        print_output(HELP)
        return 0
    if words[:1] != ["compress"]:
        raise UsageError(
            f"kirsch static has no {words[0] if words else '--fast'}; write kirsch static compress DIRECTORY"
        )
    for word in words[1:]:
        if word.startswith("-"):
            raise UsageError(f"kirsch static compress has no {word}; write ./{word} for a directory of that name")
    if len(words) == 1:
        raise UsageError("which directory? Write kirsch static compress DIRECTORY")
    for directory in words[1:]:
        if not os.path.isdir(directory):
            raise StartupError(EXIT_FAILED, f"{directory} is not a directory; name the one that --static serves")
    return compress(words[1:], fast="--fast" in argv)


def compress(directories: Sequence[str], *, fast: bool = False) -> int:
    """Compress the files below ``directories``, print the results, and return the exit status."""
    encoders, missing = _encoders(fast=fast)
    totals = {suffix: [0, 0, 0, 0] for suffix in encoders}
    failures = 0
    for path in _files(directories):
        for suffix, encode in encoders.items():
            try:
                counted = _compress(path, path + suffix, encode)
            except OSError as error:
                failures += 1
                reports.write_stderr(f"kirsch: cannot compress {path}: {reason(error)}")
                break
            if counted is not None:
                totals[suffix] = [have + more for have, more in zip(totals[suffix], counted, strict=True)]
    rows = [
        (suffix, f"{written} written", f"{present} up to date", f"{before} to {after} bytes" if written else "")
        for suffix, (written, present, before, after) in totals.items()
    ]
    print_output(table(rows))
    for suffix, hint in missing.items():
        print_output(f"no {suffix}: {hint}")
    return EXIT_FAILED if failures else 0


def _encoders(*, fast: bool) -> tuple[dict[str, Encode], dict[str, str]]:
    """Return the compression function for each suffix; and for each unavailable suffix, the package to install."""
    import gzip

    encoders: dict[str, Encode] = {}
    missing = {}
    # Without a timestamp, so that equal content gives equal bytes.
    encoders[".gz"] = lambda data: gzip.compress(data, 6 if fast else 9, mtime=0)
    try:
        brotli = __import__("brotli")
        encoders[".br"] = lambda data: brotli.compress(data, quality=5 if fast else 11)
    except ImportError:
        missing[".br"] = "pip install brotli"
    level = 9 if fast else 19
    try:
        # A module of Python 3.14, if that was built with libzstd.
        zstd = __import__("compression.zstd", fromlist=["compress"])
        encoders[".zst"] = lambda data: zstd.compress(data, level)
    except ImportError:
        try:
            zstandard = __import__("zstandard")
            encoders[".zst"] = lambda data: zstandard.ZstdCompressor(level=level).compress(data)
        except ImportError:
            missing[".zst"] = "pip install zstandard, or use CPython 3.14"
    return encoders, missing


def _files(directories: Sequence[str]) -> Iterator[str]:
    """Yield the files that may be worth compressing."""

    def fail(error: OSError) -> None:
        raise StartupError(EXIT_FAILED, f"cannot read {reason(error)}")

    extensions = _EXTENSIONS.split()
    for top in directories:
        for folder, folders, names in os.walk(top, onerror=fail):
            folders[:] = sorted(name for name in folders if name[0] != "." or (name == ".well-known" and folder == top))
            for name in sorted(names):
                if name[0] != "." and "." in name and name.rpartition(".")[2].lower() in extensions:
                    yield os.path.join(folder, name)


def _compress(path: str, copy: str, encode: Encode) -> tuple[int, int, int, int] | None:
    """Write ``copy``. Return (written, up to date, bytes before, bytes after); None if compression is not worth it."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size < _LEAST_BYTES:
        return None
    try:
        if os.lstat(copy).st_mtime_ns >= found.st_mtime_ns:
            return 0, 1, 0, 0
    except FileNotFoundError:
        pass
    with open(path, "rb") as file:
        data = file.read()
    encoded = encode(data)
    if len(encoded) > len(data) * _MOST_SHARE:
        return None
    folder, name = os.path.split(copy)
    # The server does not serve names with a leading dot, so not this incomplete file.
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with open(temporary, "xb") as file:
            file.write(encoded)
        os.chmod(temporary, stat.S_IMODE(found.st_mode))
        # The time of the content that was read: a file that has changed since is newer.
        os.utime(temporary, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.replace(temporary, copy)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    return 1, 0, len(data), len(encoded)
