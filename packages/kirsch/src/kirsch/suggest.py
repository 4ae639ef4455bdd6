"""Suggestions for misspelled words: the hints ``did you mean ...?`` of all messages.

A wrong hint is worse than none, because it leads to a setting with another meaning (``--min-requests`` is no
misspelling of ``--max-requests``). So words are compared part by part, the number of errors allowed depends on the
length of the part, and there is no hint if two known words are equally near.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PARTS = re.compile(r"[^-_. ]+")


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str | None:
    """Return the word of ``known`` of which ``word`` is probably a misspelling; None if there is none, or several.

    ``prefix`` is a prefix that all words share, such as ``--``; it is not compared.
    """
    parts = _parts(word, prefix)
    best: dict[str, int] = {}
    for candidate in known:
        edits = _edits(parts, _parts(candidate, prefix))
        if edits is not None:
            best[candidate] = edits
    if not best:
        return None
    least = min(best.values())
    # Two spellings of one name, such as --log-file and --logfile, count as one candidate.
    found = {"".join(_parts(each, prefix)): each for each, edits in best.items() if edits == least}
    return next(iter(found.values())) if len(found) == 1 else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ``; did you mean ...?``, or an empty string if no known word is near."""
    near = nearest(word, known, prefix)
    return f"; did you mean {near}?" if near else ""


def _parts(word: str, prefix: str) -> list[str]:
    return _PARTS.findall(word.removeprefix(prefix).lower())


def _edits(typed: list[str], known: list[str]) -> int | None:
    """Return the number of typing errors between two words, given as parts; None if they are different words."""
    if not typed or not known:
        return None
    if "".join(typed) == "".join(known) or sorted(typed) == sorted(known):
        return 0  # only the dashes or the order of the parts differ
    if len(typed) == len(known):
        edits = 0
        for mine, other in zip(typed, known, strict=True):
            distance = _distance(mine, other)
            if distance > _allowed(mine, other):
                return None
            edits += distance
        return edits if edits <= 3 else None
    joined = "".join(typed), "".join(known)
    # One dash is missing or superfluous, and one letter is wrong.
    return 1 if min(map(len, joined)) >= 6 and _distance(*joined) == 1 else None


def _allowed(mine: str, other: str) -> int:
    if f"no{other}" == mine or f"no{mine}" == other:
        return 0  # the opposite word, such as --no-reload for --reload
    length = max(len(mine), len(other))
    if length <= 3:
        return int(len(mine) != len(other) and length == 3)  # "ap" means "app", but "--foo" does not mean "--for"
    if length == 4:
        return 1 if mine[0] == other[0] else 0  # --find does not mean --bind
    return 1 if length <= 8 else 2


def _distance(a: str, b: str) -> int:
    """Return the number of omitted, inserted, replaced or transposed letters (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
