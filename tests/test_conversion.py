"""Command lines of other servers as settings of Kirsch: the rules that the documentation's form has too."""

from __future__ import annotations

import shlex

import pytest

from converted_commands import COMMANDS
from kirsch.config.compat.conversion import ConversionError, convert


def _command(theirs: str) -> tuple[str, list[str]]:
    words = shlex.split(theirs.removeprefix("ExecStart="), comments=True)
    conversion = convert(words)
    made = [
        word
        for each in conversion.settings
        for word in ([each.flag] if each.value is None else [each.flag, each.value])
    ]
    rows = [f"{note.option}|{note.result}|{note.say}" for note in conversion.notes]
    return shlex.join([*made, conversion.application or "module:app"]), rows


@pytest.mark.parametrize("theirs", COMMANDS)
def test_a_command_becomes_the_one_that_the_form_shows(theirs: str) -> None:
    wanted = COMMANDS[theirs]
    command, *notes = (wanted,) if isinstance(wanted, str) else wanted
    if "kirsch" not in command:
        with pytest.raises((ConversionError, ValueError)):
            _command(theirs)
        return
    made, rows = _command(theirs)
    words = shlex.split(command)
    ours = words[next(at for at, word in enumerate(words) if word.endswith("kirsch")) + 1 :]
    assert shlex.split(made) == ours
    assert [note for note in notes if not any(row.startswith(note) for row in rows)] == [], rows
